//! Loading and validation: small inputs, whole answers.

use std::time::Duration;

use outboxd::config::{Config, Env, Errors, Loaded, Origin, QueueKind, RouteConfig, Scope, Sources, Wakeup, load};
use outboxd::retry::{Decision, Failure, Position, decide};
use secrecy::ExposeSecret;

mod validation;

/// Enough to be complete.
const BASE: &str = r#"
database_url = "postgres://app:hunter2@127.0.0.1/app"
[channels.push]
url = "https://push.example/v1/send"
[routes.default]
channels = ["push"]
"#;

fn env(pairs: &[(&str, &str)]) -> Env {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn load_text(text: &str, pairs: &[(&str, &str)], overrides: &[(&str, &str)]) -> Result<Loaded, Errors> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("outboxd.toml");
    std::fs::write(&file, text).unwrap();
    let overrides = overrides.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    load(&Sources { file: Some(file), env: env(pairs), overrides })
}

fn config(text: &str, pairs: &[(&str, &str)]) -> Config {
    load_text(text, pairs, &[]).unwrap_or_else(|errors| panic!("{errors}")).config
}

/// Every error's text, without the directory of the file.
fn errors(text: &str, pairs: &[(&str, &str)]) -> Vec<String> {
    let Errors(all) = load_text(text, pairs, &[]).map(|loaded| loaded.config).unwrap_err();
    all.iter()
        .map(|error| {
            let text = error.to_string();
            text.find("outboxd.toml:").map_or(text.clone(), |at| text[at..].to_owned())
        })
        .collect()
}

#[test]
fn without_keys_the_documented_defaults_hold() {
    let config = config(BASE, &[]);
    let seconds = Duration::from_secs;
    let day = seconds(86_400);
    assert_eq!(config.http_addr.to_string(), "127.0.0.1:8080");
    assert_eq!(
        (config.database.pool_size, config.database.connect_timeout, config.database.statement_timeout),
        (10, seconds(5), seconds(30))
    );
    assert_eq!(
        (config.queue.kind, config.queue.prefix.as_str(), config.queue.window, config.queue.fallback_after),
        (QueueKind::Memory, "outboxd", 10_000, Some(seconds(10)))
    );
    assert_eq!(config.relay.wakeup, Wakeup::Bell);
    assert_eq!((config.relay.republish_after, config.relay.poll), (seconds(5), Duration::from_millis(50)));
    let worker = &config.worker;
    assert_eq!((worker.concurrency, worker.lease, worker.drain), (256, seconds(60), seconds(25)));
    assert_eq!((worker.heartbeat, worker.heartbeat_ttl), (seconds(5), seconds(15)));
    assert_eq!((config.reconcile.published_after, config.reconcile.every), (seconds(600), seconds(120)));
    let kept = &config.retention;
    assert_eq!([kept.sent, kept.failed, kept.canceled, kept.attempts], [7, 30, 7, 30].map(|days| day * days));
    assert_eq!([kept.events, kept.inbox, kept.audit, kept.idempotency], [7, 7, 90, 1].map(|days| day * days));
    assert_eq!(config.events.stream_max, 100_000);
    let telemetry = &config.telemetry;
    assert_eq!((telemetry.otlp_endpoint.as_deref(), telemetry.otlp_headers.len()), (None, 0));
    assert_eq!((telemetry.otlp_sample_ratio, telemetry.service_name.as_str()), (1.0, "outboxd"));
    let push = &config.channels["push"];
    assert_eq!((push.timeout, push.connect_timeout, push.first_byte_timeout), (seconds(5), seconds(2), seconds(5)));
    assert_eq!((push.response_bytes_max, push.retry_after_max), (16 << 10, seconds(3600)));
    assert_eq!((push.circuit.failures, push.circuit.unauthorized, push.circuit.open_for), (10, 5, seconds(30)));
    assert_eq!(push.circuit.open_max, seconds(300));
    assert_eq!((push.max_in_flight, push.max_in_flight_per_origin, push.allow_private), (None, 128, false));
    let route = &config.routes["default"];
    assert_eq!((route.max_attempts, route.attempts_before_failover), (10, 3));
    assert_eq!((route.backoff.base, route.backoff.max, route.backoff.jitter), (seconds(5), seconds(3600), 0.2));
}

/// When the attempts of a notification begin whose provider only ever fails at once.
fn attempts_at(route: &RouteConfig, random: f64) -> Vec<Duration> {
    let mut at = vec![Duration::ZERO];
    loop {
        let position = Position { channel: 0, attempts: u32::try_from(at.len()).unwrap() };
        match decide(route, position, Failure::Transient, None, random) {
            Decision::Retry(wait) => at.push(*at.last().unwrap() + wait),
            Decision::GiveUp => return at,
            Decision::NextChannel => panic!("it is the last channel"),
        }
    }
}

#[test]
fn the_default_attempts_outlast_a_bad_quarter_of_an_hour() {
    let route = &config(BASE, &[]).routes["default"];
    assert_eq!(route.channels.len(), 1);
    let shortest = *attempts_at(route, 0.0).last().unwrap();
    assert!(shortest > Duration::from_secs(15 * 60), "{shortest:?}");
    let shown = |at: &Duration| match at.as_secs_f64() {
        at if at < 100.0 => format!("{at:.0} s"),
        at => format!("{:.0} min", at / 60.0),
    };
    let schedule = attempts_at(route, 0.5)[1..].iter().map(shown).collect::<Vec<_>>().join(", ");
    for page in [include_str!("../../README.md"), include_str!("../../docs/channels.md")] {
        assert!(page.split_whitespace().collect::<Vec<_>>().join(" ").contains(&schedule), "{schedule}");
    }
}

#[test]
fn defaults_follow_what_is_around_them() {
    let redis = config(BASE, &[("REDIS_URL", "redis://127.0.0.1")]);
    assert_eq!(redis.queue.kind, QueueKind::Stream);
    let stays = config(BASE, &[("OUTBOXD_QUEUE_FALLBACK_AFTER", "never")]);
    assert_eq!(stays.queue.fallback_after, None);
    let pooled = config(BASE, &[("OUTBOXD_DATABASE_POOLER", "true")]);
    assert_eq!(pooled.relay.wakeup, Wakeup::Poll);
    let once = config(BASE, &[("OUTBOXD_ROUTES_DEFAULT_MAX_ATTEMPTS", "1")]);
    assert_eq!(once.routes["default"].attempts_before_failover, 1);
    let quick = config(BASE, &[("OUTBOXD_CHANNELS_PUSH_TIMEOUT", "500ms")]);
    assert_eq!(quick.channels["push"].connect_timeout, Duration::from_millis(500));
    for (concurrency, per_origin) in [("1", 1), ("7", 4), ("200", 100)] {
        let few = config(BASE, &[("OUTBOXD_WORKER_CONCURRENCY", concurrency)]);
        assert_eq!(few.channels["push"].max_in_flight_per_origin, per_origin, "half of {concurrency}, one at least");
    }
    let own = config(BASE, &[("OUTBOXD_CHANNELS_PUSH_MAX_IN_FLIGHT_PER_ORIGIN", "3")]);
    assert_eq!(own.channels["push"].max_in_flight_per_origin, 3);
}

#[test]
fn the_environment_wins_over_the_file_and_flags_over_both() {
    let text = format!("{BASE}[worker]\nconcurrency = 1\nlease = \"61s\"\nheartbeat = \"6s\"");
    let pairs = [("OUTBOXD_WORKER_CONCURRENCY", "2"), ("OUTBOXD_WORKER_LEASE", "62s")];
    let loaded = load_text(&text, &pairs, &[("worker.lease", "63s")]).unwrap();
    let worker = &loaded.config.worker;
    assert_eq!((worker.concurrency, worker.lease.as_secs(), worker.heartbeat.as_secs()), (2, 63, 6));
    let origin = |key: &str| loaded.shown.iter().find(|shown| shown.key == key).unwrap().origin.clone();
    assert_eq!(origin("worker.concurrency"), Origin::Env("OUTBOXD_WORKER_CONCURRENCY".into()));
    assert_eq!(origin("worker.lease"), Origin::Flag);
    assert!(matches!(origin("worker.heartbeat"), Origin::File { line: 10, .. }));
    assert_eq!(origin("worker.drain"), Origin::Default);
}

#[test]
fn a_value_that_is_replaced_needs_no_mending() {
    let text = format!("{BASE}[worker]\nconcurrency = \"many\"\nlease = \"${{NOT_SET}}\"");
    let pairs = [("OUTBOXD_WORKER_CONCURRENCY", "2"), ("OUTBOXD_WORKER_LEASE", "62s")];
    assert_eq!(config(&text, &pairs).worker.concurrency, 2);
}

#[test]
fn opentelemetrys_variables_count_only_where_nobody_told_outboxd() {
    let otel = [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://platform:4318"), ("OTEL_SERVICE_NAME", "platform")];
    let named = |text: &str, pairs: &[(&str, &str)]| {
        let telemetry = config(text, pairs).telemetry;
        (telemetry.otlp_endpoint.unwrap_or_default(), telemetry.service_name)
    };
    let pair = |endpoint: &str, name: &str| (endpoint.to_owned(), name.to_owned());
    assert_eq!(named(BASE, &otel), pair("http://platform:4318", "platform"));
    let file = format!("{BASE}[telemetry]\notlp_endpoint = \"http://own:4318\"\n");
    assert_eq!(named(&file, &otel), pair("http://own:4318", "platform"));
    let own = [otel[0], otel[1], ("OUTBOXD_TELEMETRY_SERVICE_NAME", "own")];
    assert_eq!(named(&file, &own), pair("http://own:4318", "own"));
    assert_eq!(named(BASE, &[("OTEL_EXPORTER_OTLP_ENDPOINT", "")]), pair("", "outboxd"));
}

#[test]
fn channels_and_routes_can_come_from_the_environment_alone() {
    let pairs = [
        ("DATABASE_URL", "postgres://127.0.0.1/app"),
        ("OUTBOXD_CHANNELS_SMS_URL", "https://sms.example/send"),
        ("OUTBOXD_CHANNELS_SMS_CONNECT_TIMEOUT", "1s"),
        ("OUTBOXD_CHANNELS_SMS_HEADERS_X_API_KEY", "k"),
        ("OUTBOXD_CHANNELS_SMS_RATE_LIMIT", "1000/m"),
        ("OUTBOXD_CHANNELS_SMS_CIRCUIT_OPEN_FOR", "1m"),
        ("OUTBOXD_CHANNELS_SMS_DENY", "10.0.0.0/8, 192.168.1.1"),
        ("OUTBOXD_CHANNELS_SMS_PROXY", "http://egress:4750"),
        ("OUTBOXD_ROUTES_DEFAULT_CHANNELS", "sms"),
        ("OUTBOXD_ROUTES_DEFAULT_BACKOFF_JITTER", "0.5"),
    ];
    let config = config("", &pairs);
    let sms = &config.channels["sms"];
    assert_eq!(sms.connect_timeout, Duration::from_secs(1));
    assert_eq!(sms.headers["x-api-key"].expose_secret(), "k");
    assert_eq!(sms.rate_limit.map(|limit| (limit.count, limit.per.as_secs())), Some((1000, 60)));
    assert_eq!(sms.circuit.open_for, Duration::from_secs(60));
    assert_eq!(sms.proxy.as_ref().map(|proxy| proxy.expose_secret()), Some("http://egress:4750"));
    assert_eq!(sms.deny.iter().map(ToString::to_string).collect::<Vec<_>>(), ["10.0.0.0/8", "192.168.1.1/32"]);
    assert_eq!(
        (config.routes["default"].channels.as_slice(), config.routes["default"].backoff.jitter),
        (&["sms".to_owned()][..], 0.5)
    );
}

#[test]
fn a_variable_finds_the_name_that_the_file_spells() {
    let text = format!(
        "{BASE}[channels.bulk-connect]\nurl = \"https://a.example/\"\n[routes.\"order.paid\"]\nchannels = [\"push\"]\n"
    );
    let pairs = [("OUTBOXD_CHANNELS_BULK_CONNECT_TIMEOUT", "9s"), ("OUTBOXD_ROUTES_ORDER_PAID_MAX_ATTEMPTS", "9")];
    let config = config(&text, &pairs);
    assert_eq!(config.channels["bulk-connect"].timeout, Duration::from_secs(9));
    assert_eq!(config.routes["order.paid"].max_attempts, 9);
}

#[test]
fn secrets_can_come_from_files_and_variables() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (url, token, push) =
        (file("url", "postgres://a:b@127.0.0.1/app\n"), file("token", "t0ken-of-16-characters\n"), file("push", "p\n"));
    let collector = file("collector", "authorization=Bearer c, x-tenant=a=b\n");
    let text = "[channels.push]\nurl = \"https://push.example/$${x}\"\nheaders = { Authorization = \"Bearer ${PUSH_TOKEN}\", X-Two = \"${TWO}\" }\n";
    let pairs = [
        ("DATABASE_URL_FILE", url.as_str()),
        ("OUTBOXD_HTTP_TOKEN_FILE", &token),
        ("OUTBOXD_TELEMETRY_OTLP_HEADERS_FILE", &collector),
        ("PUSH_TOKEN_FILE", &push),
        ("TWO", "2"),
        ("REDIS_URL", ""),
    ];
    let config = config(text, &pairs);
    assert_eq!(config.database_url.expose_secret(), "postgres://a:b@127.0.0.1/app");
    assert_eq!(config.http_token.unwrap().expose_secret(), "t0ken-of-16-characters");
    let headers: Vec<&str> = config.telemetry.otlp_headers.iter().map(|header| header.expose_secret()).collect();
    assert_eq!(headers, ["authorization=Bearer c", "x-tenant=a=b"]);
    assert!(config.redis_url.is_none(), "an empty variable counts as unset");
    let push = &config.channels["push"];
    assert_eq!(push.url, "https://push.example/${x}");
    assert_eq!(push.headers["Authorization"].expose_secret(), "Bearer p");
    assert_eq!(push.headers["X-Two"].expose_secret(), "2");
}

#[test]
fn tokens_have_a_scope_topics_and_by_scope_a_right_to_see_payloads() {
    let text = "[tokens.shop]\ntoken = \"${SHOP}\"\nscope = \"write\"\ntopics = [\"order.*\"]\n[tokens.ops]\nscope = \"operate\"\n\
                [tokens.page]\ntoken = \"a-token-of-the-page\"\nscope = \"read\"\npayloads = true\n";
    let pairs = [("SHOP", "a-token-of-the-shop"), ("OUTBOXD_TOKENS_OPS_TOKEN", "a-token-of-the-ops")];
    let tokens = config(&format!("{BASE}{text}"), &pairs).tokens;
    let shown = |name: &str| {
        let token = &tokens[name];
        (token.token.expose_secret().to_owned(), token.scope, token.topics.clone(), token.payloads)
    };
    assert_eq!(shown("shop"), ("a-token-of-the-shop".into(), Scope::Write, Some(vec!["order.*".into()]), false));
    assert_eq!(shown("ops"), ("a-token-of-the-ops".into(), Scope::Operate, None, true));
    assert_eq!(shown("page"), ("a-token-of-the-page".into(), Scope::Read, None, true));
}

#[test]
fn variables_of_kubernetes_and_of_the_command_line_are_no_errors() {
    let names = [
        "OUTBOXD_SERVICE_HOST",
        "OUTBOXD_SERVICE_PORT",
        "OUTBOXD_SERVICE_PORT_HTTP",
        "OUTBOXD_PORT",
        "OUTBOXD_PORT_8080_TCP",
        "OUTBOXD_PORT_8080_TCP_ADDR",
        "OUTBOXD_API_PORT_80_TCP_PROTO",
        "OUTBOXD_LOG",
        "OUTBOXD_ROLE",
    ];
    config(BASE, &names.map(|name| (name, "tcp://10.0.0.1:8080")));
}

#[test]
fn secrets_never_print() {
    let text = format!(
        "{BASE}[channels.sms]\nurl = \"https://u:hunter2@sms.example/${{PATH_TOKEN}}\"\nheaders = {{ A = \"hunter2\" }}\nwith = {{ b = \"hunter2\" }}\nbody = '\"hunter2\"'\nsecret = \"whsec_aHVudGVyMmh1bnRlcjJodW50ZXIyaHVudGVyMg==\"\nproxy = \"http://u:hunter2@egress\"\n"
    );
    let pairs = [
        ("OUTBOXD_HTTP_TOKEN", "hunter2-hunter2-hunter2"),
        ("OUTBOXD_TOKENS_OPS_TOKEN", "another-hunter2-token"),
        ("OUTBOXD_TOKENS_OPS_SCOPE", "read"),
        ("OUTBOXD_TELEMETRY_OTLP_HEADERS", "authorization=hunter2"),
        ("PATH_TOKEN", "hunter2"),
        ("REDIS_URL", "redis://:hunter2@127.0.0.1"),
    ];
    let mut loaded = load_text(&text, &pairs, &[]).unwrap();
    loaded.shown.retain(|shown| shown.key != "channels.sms.body");
    for printed in [format!("{loaded:?}"), format!("{:?}", loaded.config)] {
        assert!(!printed.contains("hunter2") && !printed.contains("aHVudGVy"), "{printed}");
    }
    let wrong = errors(
        &format!("{text}secret = 5"),
        &[
            ("OUTBOXD_HTTP_ADDR", "x"),
            ("OUTBOXD_TELEMETRY_OTLP_ENDPOINT", "http://u:hunter2@127.0.0.1"),
            ("OUTBOXD_TELEMETRY_OTLP_HEADERS", "hunter2,host=hunter2"),
            ("PATH_TOKEN", "hunter2"),
            ("DATABASE_URL", "postgres://a:hunter2@127.0.0.1:port/x"),
        ],
    );
    assert!(!wrong.join("\n").contains("hunter2"), "{wrong:#?}");
}

#[test]
fn what_is_shown_is_what_was_written() {
    let text = format!(
        "{BASE}[channels.webhook]\nurl = \"{{{{ recipient }}}}\"\n[queue]\nwindow = 20_000\ndeliveries_max = 0x10\n"
    );
    let loaded = load_text(&text, &[], &[]).unwrap();
    let shown = |key: &str| loaded.shown.iter().find(|shown| shown.key == key).unwrap().value.clone();
    assert_eq!(shown("channels.webhook.url"), "{{ recipient }}");
    assert_eq!(shown("queue.kind"), "memory");
    assert_eq!((loaded.config.queue.window, loaded.config.queue.deliveries_max), (20_000, 16));
}
