//! Loading and validation: small inputs, whole answers.

use std::time::Duration;

use outboxd::config::{Config, Env, Loaded, Mistakes, Origin, QueueKind, Role, Sources, Wakeup, load, validate_roles};
use secrecy::ExposeSecret;

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

fn load_text(text: &str, pairs: &[(&str, &str)], overrides: &[(&str, &str)]) -> Result<Loaded, Mistakes> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("outboxd.toml");
    std::fs::write(&file, text).unwrap();
    let overrides = overrides.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    load(&Sources { file: Some(file), env: env(pairs), overrides })
}

fn config(text: &str, pairs: &[(&str, &str)]) -> Config {
    load_text(text, pairs, &[]).unwrap_or_else(|mistakes| panic!("{mistakes}")).config
}

/// Every mistake's text, without the directory of the file.
fn mistakes(text: &str, pairs: &[(&str, &str)]) -> Vec<String> {
    let Mistakes(all) = load_text(text, pairs, &[]).map(|loaded| loaded.config).unwrap_err();
    all.iter()
        .map(|mistake| {
            let text = mistake.to_string();
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
        (config.queue.kind, config.queue.prefix.as_str(), config.queue.window),
        (QueueKind::Memory, "outboxd", 10_000)
    );
    assert_eq!((config.producer.batch, config.relay.batch, config.relay.wakeup), (500, 500, Wakeup::Bell));
    assert_eq!((config.relay.republish_after, config.relay.poll), (seconds(5), Duration::from_millis(50)));
    let worker = &config.worker;
    assert_eq!((worker.concurrency, worker.lease, worker.drain), (64, seconds(60), seconds(25)));
    assert_eq!((worker.heartbeat, worker.heartbeat_ttl), (seconds(5), seconds(15)));
    assert_eq!((config.reconcile.published_after, config.reconcile.every), (seconds(600), seconds(120)));
    let kept = &config.retention;
    assert_eq!([kept.sent, kept.failed, kept.canceled, kept.attempts], [7, 30, 7, 30].map(|days| day * days));
    assert_eq!([kept.events, kept.inbox, kept.audit], [7, 7, 90].map(|days| day * days));
    let push = &config.channels["push"];
    assert_eq!((push.timeout, push.connect_timeout, push.first_byte_timeout), (seconds(5), seconds(2), seconds(5)));
    assert_eq!((push.response_bytes_max, push.retry_after_max), (16 << 10, seconds(3600)));
    assert_eq!((push.circuit.failures, push.circuit.unauthorized, push.circuit.open_for), (10, 5, seconds(30)));
    assert_eq!((push.max_in_flight, push.max_in_flight_per_origin, push.allow_private), (None, 8, false));
    let route = &config.routes["default"];
    assert_eq!((route.max_attempts, route.attempts_before_failover), (4, 3));
    assert_eq!((route.backoff.base, route.backoff.max, route.backoff.jitter), (seconds(5), seconds(3600), 0.2));
}

#[test]
fn defaults_follow_what_is_around_them() {
    let redis = config(BASE, &[("REDIS_URL", "redis://127.0.0.1")]);
    assert_eq!(redis.queue.kind, QueueKind::Stream);
    let pooled = config(BASE, &[("OUTBOXD_DATABASE_POOLER", "true")]);
    assert_eq!(pooled.relay.wakeup, Wakeup::Poll);
    let once = config(BASE, &[("OUTBOXD_ROUTES_DEFAULT_MAX_ATTEMPTS", "1")]);
    assert_eq!(once.routes["default"].attempts_before_failover, 1);
    let quick = config(BASE, &[("OUTBOXD_CHANNELS_PUSH_TIMEOUT", "500ms")]);
    assert_eq!(quick.channels["push"].connect_timeout, Duration::from_millis(500));
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
fn channels_and_routes_can_come_from_the_environment_alone() {
    let pairs = [
        ("DATABASE_URL", "postgres://127.0.0.1/app"),
        ("OUTBOXD_CHANNELS_SMS_URL", "https://sms.example/send"),
        ("OUTBOXD_CHANNELS_SMS_CONNECT_TIMEOUT", "1s"),
        ("OUTBOXD_CHANNELS_SMS_HEADERS_X_API_KEY", "k"),
        ("OUTBOXD_CHANNELS_SMS_RATE_LIMIT", "1000/m"),
        ("OUTBOXD_CHANNELS_SMS_CIRCUIT_OPEN_FOR", "1m"),
        ("OUTBOXD_CHANNELS_SMS_DENY", "10.0.0.0/8, 192.168.1.1"),
        ("OUTBOXD_ROUTES_DEFAULT_CHANNELS", "sms"),
        ("OUTBOXD_ROUTES_DEFAULT_BACKOFF_JITTER", "0.5"),
    ];
    let config = config("", &pairs);
    let sms = &config.channels["sms"];
    assert_eq!(sms.connect_timeout, Duration::from_secs(1));
    assert_eq!(sms.headers["x-api-key"].expose_secret(), "k");
    assert_eq!(sms.rate_limit.map(|limit| (limit.count, limit.per.as_secs())), Some((1000, 60)));
    assert_eq!(sms.circuit.open_for, Duration::from_secs(60));
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
        (file("url", "postgres://a:b@127.0.0.1/app\n"), file("token", "t0ken\n"), file("push", "p\n"));
    let text = "[channels.push]\nurl = \"https://push.example/$${x}\"\nheaders = { Authorization = \"Bearer ${PUSH_TOKEN}\", X-Two = \"${TWO}\" }\n";
    let pairs = [
        ("DATABASE_URL_FILE", url.as_str()),
        ("OUTBOXD_HTTP_TOKEN_FILE", &token),
        ("PUSH_TOKEN_FILE", &push),
        ("TWO", "2"),
        ("REDIS_URL", ""),
    ];
    let config = config(text, &pairs);
    assert_eq!(config.database_url.expose_secret(), "postgres://a:b@127.0.0.1/app");
    assert_eq!(config.http_token.unwrap().expose_secret(), "t0ken");
    assert!(config.redis_url.is_none(), "an empty variable counts as unset");
    let push = &config.channels["push"];
    assert_eq!(push.url, "https://push.example/${x}");
    assert_eq!(push.headers["Authorization"].expose_secret(), "Bearer p");
    assert_eq!(push.headers["X-Two"].expose_secret(), "2");
}

#[test]
fn every_mistake_is_reported_at_once_with_its_line_and_path() {
    let text = r#"
database_url = "mysql://127.0.0.1/app"
http_addr = "0.0.0.0:8080"
colour = "red"
[worker]
concurency = 8
lease = 60
heartbeat = "5s"
heartbeat_ttl = "9s"
[channels.push]
url = "ftp://push.example"
timeout = "soon"
[routes.quiz]
channels = ["pusch"]
max_attempts = 0
"#;
    let found = mistakes(text, &[("OUTBOXD_WORKER_LEESE", "1m"), ("OUTBOXD_RELAY_BATCH", "-1")]);
    let wanted = [
        "outboxd.toml:2: database_url begins with mysql://; write postgres://user:password@host/database",
        "outboxd.toml:3: http_addr is 0.0.0.0:8080, which others can reach; set http_token (OUTBOXD_HTTP_TOKEN), or listen on 127.0.0.1",
        "outboxd.toml:4: colour is not a key that outboxd knows",
        "outboxd.toml:6: worker.concurency is not a key that outboxd knows; did you mean \"worker.concurrency\"?",
        "outboxd.toml:7: worker.lease takes a duration with its unit, such as \"5s\" or \"10m\", not a number",
        "outboxd.toml:9: worker.heartbeat_ttl is 9s; it must be more than twice worker.heartbeat (5s), else one late beat makes an instance look dead",
        "outboxd.toml:11: channels.push.url must begin with http:// or https://, or with {{ where it comes from data",
        "outboxd.toml:12: channels.push.timeout \"soon\" is no duration; write a number and its unit, such as \"5s\", \"10m\" or \"7d\"",
        "outboxd.toml:14: routes.quiz.channels names \"pusch\", but there is no [channels.pusch]; did you mean \"push\"?",
        "outboxd.toml:15: routes.quiz.max_attempts is 0; it takes 1 to 100",
        "OUTBOXD_RELAY_BATCH: relay.batch is -1; it takes 1 to 10000",
        "OUTBOXD_WORKER_LEESE: is not a variable that outboxd knows; did you mean \"OUTBOXD_WORKER_LEASE\"?",
    ];
    assert_eq!(found, wanted);
}

/// What is added to the base, and the beginning of the only mistake that it is.
// One line a case reads as the table it is.
#[rustfmt::skip]
const WRONG: &[(&str, &str)] = &[
    ("[worker]\nlease = \"5s\"", "worker.lease is 5s; it must exceed the timeout of channels.push (5s)"),
    (
        "[channels.sms]\nurl = \"https://sms.example\"\nrate_limit = \"1/s\"",
        "worker.lease is 1m; it must exceed the timeout of channels.sms (5s) and the wait for its rate_limit (1m 4s)",
    ),
    ("[queue]\nkind = \"stream\"", "queue.kind needs Redis; set redis_url"),
    (
        "[queue]\nkind = \"streem\"",
        "queue.kind \"streem\" is none of \"stream\", \"list\", \"memory\"; did you mean \"stream\"?",
    ),
    ("[queue]\nprefix = \"a{b}\"", "queue.prefix takes letters"),
    ("[queue]\nwindow = 0", "queue.window is 0; it takes 1 to 1000000"),
    ("[database]\npool_size = 1", "database.pool_size is 1; it takes 2 to 500"),
    ("[database]\npooler = true\n[relay]\nwakeup = \"bell\"", "relay.wakeup is bell, which needs LISTEN"),
    ("[relay]\npoll = \"0s\"", "relay.poll is 0s; it takes 1ms to 1m"),
    (
        "[relay]\nrepublish_after = \"20m\"",
        "reconcile.published_after is 10m; it must be longer than relay.republish_after (20m)",
    ),
    ("worker = 5", "routes.default.worker is not a key"),
    ("[[channels.sms]]\nurl = \"x\"", "channels.sms is a table; write [channels.sms] with method, url"),
    ("[retention.sent]\nx = 1", "retention.sent is a value, not a table"),
    ("lease = \"5s\"", "routes.default.lease is not a key that outboxd knows; did you mean \"worker.lease\"?"),
    ("backoff = \"5s\"", "routes.default.backoff is a table; write [routes.default.backoff] with base, max, jitter"),
    (
        "backoff = { base = \"2h\" }",
        "routes.default.backoff.base is 2h; it must be at most routes.default.backoff.max (1h)",
    ),
    ("backoff = { jitter = 1.5 }", "routes.default.backoff.jitter is 1.5; it takes 0 to 1"),
    (
        "attempts_before_failover = 5",
        "routes.default.attempts_before_failover is 5; it must be at most routes.default.max_attempts (4)",
    ),
    ("[routes.a]", "routes.a.channels is missing"),
    ("[routes.a]\nchannels = []", "routes.a.channels is empty"),
    ("[routes.a]\nchannels = [\"push\", \"push\"]", "routes.a.channels names \"push\" twice"),
    ("[channels.a]", "channels.a.url is missing"),
    ("[channels.\"a b\"]\nurl = \"https://a.example\"", "channels.\"a b\" has a name that will not do"),
    ("[channels.a]\nurl = \"https://a.example/{{ recipient\"", "channels.a.url is no template"),
    ("[channels.a]\nurl = \"https://a.example\"\nbody = \"{% if %}\"", "channels.a.body is no template"),
    (
        "[channels.a]\nurl = \"https://a.example\"\nheaders = { \"a b\" = \"1\" }",
        "channels.a.headers.\"a b\" is no header name",
    ),
    (
        "[channels.a]\nurl = \"https://a.example\"\nheaders = { Webhook-Id = \"1\" }",
        "channels.a.headers.Webhook-Id is set by outboxd itself",
    ),
    (
        "[channels.a]\nurl = \"https://a.example\"\nheaders = { A = \"1\\n2\" }",
        "channels.a.headers.A holds a line break",
    ),
    (
        "[channels.a]\nurl = \"https://a.example\"\nheaders = { A = \"${NOPE}\" }",
        "channels.a.headers.A needs the environment variable NOPE (or NOPE_FILE)",
    ),
    ("[channels.a]\nurl = \"https://a.example\"\nsecret = \"whsec_!\"", "channels.a.secret is no base64 after whsec_"),
    ("[channels.a]\nurl = \"https://a.example\"\nsecret = \"hunter2\"", "channels.a.secret does not begin with whsec_"),
    ("[channels.a]\nurl = \"https://a.example\"\nsecret = \"whsec_c2hvcnQ=\"", "channels.a.secret has 5 bytes"),
    (
        "[channels.a]\nurl = \"https://a.example\"\nconnect_timeout = \"6s\"",
        "channels.a.connect_timeout is 6s; it must be at most channels.a.timeout (5s)",
    ),
    ("[channels.a]\nurl = \"https://a.example\"\nrate_limit = \"fast\"", "channels.a.rate_limit \"fast\" is no rate"),
    (
        "[channels.a]\nurl = \"https://a.example\"\nresponse_bytes_max = \"1KB\"",
        "channels.a.response_bytes_max is 1KB; it takes 1024 to 16777216 bytes",
    ),
    ("[channels.a]\nurl = \"https://a.example\"\nallow = [\"10/8\"]", "channels.a.allow \"10/8\" is no network"),
];

#[test]
fn each_mistake_says_what_is_wrong_and_what_to_do() {
    for (added, beginning) in WRONG {
        let found = mistakes(&format!("{BASE}{added}\n"), &[]);
        assert_eq!(found.len(), 1, "{added}: {found:#?}");
        let text = found[0]
            .split_once(": ")
            .filter(|(at, _)| at.starts_with("outboxd.toml:"))
            .map_or(found[0].as_str(), |(_, text)| text);
        assert!(text.starts_with(beginning), "{added}: {text}");
    }
}

#[test]
fn syntax_errors_do_not_hide_one_another() {
    let found = mistakes("database_url = \n[worker]\nlease = \"60s\nconcurency = 5\n", &[]);
    assert!(found.iter().any(|text| text.starts_with("outboxd.toml:1:")), "{found:#?}");
    assert!(found.iter().any(|text| text.starts_with("outboxd.toml:3:")), "{found:#?}");
    assert!(found.iter().any(|text| text.contains("worker.concurency")), "{found:#?}");
}

#[test]
fn environment_variables_are_held_to_the_same_rules() {
    for (name, value, wanted) in [
        (
            "OUTBOXD_CHANNELS_PUSH_URI",
            "https://x.example",
            "OUTBOXD_CHANNELS_PUSH_URI: is not a variable that outboxd knows; did you mean \"OUTBOXD_CHANNELS_PUSH_URL\"?",
        ),
        (
            "OUTBOXD_WORKER_LEASE_FILE",
            "/x",
            "OUTBOXD_WORKER_LEASE_FILE: is not a variable that outboxd knows; did you mean \"OUTBOXD_WORKER_LEASE\"?",
        ),
        (
            "DATABASE_URL_FILE",
            "/no/such/file",
            "DATABASE_URL_FILE: database_url could not be read from /no/such/file: No such file or directory (os error 2)",
        ),
        (
            "OUTBOXD_HTTP_ADDR",
            "everywhere",
            "OUTBOXD_HTTP_ADDR: http_addr \"everywhere\" is no IP address and port; write it as \"127.0.0.1:8080\" or \"[::1]:8080\"",
        ),
        ("OUTBOXD_DATABASE_POOLER", "yes", "OUTBOXD_DATABASE_POOLER: database.pooler takes true or false, not \"yes\""),
        (
            "REDIS_URL",
            "127.0.0.1:6379",
            "REDIS_URL: redis_url is no Redis URL; write redis://host:6379, rediss:// for TLS, redis+sentinel://host:26379/name",
        ),
    ] {
        assert_eq!(mistakes(BASE, &[(name, value)]), [wanted]);
    }
    let both = mistakes(BASE, &[("OUTBOXD_HTTP_TOKEN", "a"), ("OUTBOXD_HTTP_TOKEN_FILE", "/a")]);
    assert_eq!(
        both,
        ["OUTBOXD_HTTP_TOKEN: http_token is given twice: unset either OUTBOXD_HTTP_TOKEN or OUTBOXD_HTTP_TOKEN_FILE"]
    );
}

#[test]
fn variables_of_kubernetes_and_of_the_command_line_are_no_mistakes() {
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
fn an_unknown_flag_key_is_a_mistake_too() {
    let Mistakes(found) =
        load_text(BASE, &[], &[("worker.leese", "1m"), ("routes.\"a.b\".channels", "push")]).map(|_| ()).unwrap_err();
    assert_eq!(found.len(), 1);
    assert_eq!(
        found[0].to_string(),
        "--set: worker.leese is not a key that outboxd knows; did you mean \"worker.lease\"?"
    );
}

#[test]
fn secrets_never_print() {
    let text = format!(
        "{BASE}[channels.sms]\nurl = \"https://u:hunter2@sms.example/${{PATH_TOKEN}}\"\nheaders = {{ A = \"hunter2\" }}\nbody = \"hunter2\"\nsecret = \"whsec_aHVudGVyMmh1bnRlcjJodW50ZXIyaHVudGVyMg==\"\n"
    );
    let pairs =
        [("OUTBOXD_HTTP_TOKEN", "hunter2"), ("PATH_TOKEN", "hunter2"), ("REDIS_URL", "redis://:hunter2@127.0.0.1")];
    let mut loaded = load_text(&text, &pairs, &[]).unwrap();
    loaded.shown.retain(|shown| shown.key != "channels.sms.body");
    for printed in [format!("{loaded:?}"), format!("{:?}", loaded.config)] {
        assert!(!printed.contains("hunter2") && !printed.contains("aHVudGVy"), "{printed}");
    }
    let wrong = mistakes(
        &format!("{text}secret = 5"),
        &[
            ("OUTBOXD_HTTP_ADDR", "x"),
            ("PATH_TOKEN", "hunter2"),
            ("DATABASE_URL", "postgres://a:hunter2@127.0.0.1:port/x"),
        ],
    );
    assert!(!wrong.join("\n").contains("hunter2"), "{wrong:#?}");
}

#[test]
fn the_in_process_queue_refuses_split_roles() {
    let all = Role::ALL.into_iter().collect();
    let workers = [Role::Worker].into_iter().collect();
    let alone = config(BASE, &[]);
    assert!(validate_roles(&all, &alone).is_ok());
    let refused = validate_roles(&workers, &alone).unwrap_err().to_string();
    assert!(refused.contains("--role leaves out producer, relay"), "{refused}");
    assert!(validate_roles(&workers, &config(BASE, &[("REDIS_URL", "redis://127.0.0.1")])).is_ok());
}

#[test]
fn a_worker_needs_a_route_and_other_commands_do_not() {
    let bare = config("", &[("DATABASE_URL", "postgres://127.0.0.1/app")]);
    let refused = validate_roles(&Role::ALL.into_iter().collect(), &bare).unwrap_err().to_string();
    assert!(refused.contains("no route leads anywhere"), "{refused}");
}

#[test]
fn database_urls_and_key_value_strings_are_understood() {
    for good in [
        "postgres://a:b@127.0.0.1:5432/app?sslmode=require",
        "postgresql://127.0.0.1/app?sslmode=verify-full&connect_timeout=3",
        "host=127.0.0.1 user=app password='a b\\'c' dbname=app sslmode=disable",
        "postgres:///app?host=/run/postgresql&sslmode=prefer",
    ] {
        config("", &[("DATABASE_URL", good)]);
    }
    for (wrong, wanted) in [
        ("hunter2", "is neither a URL (postgres://…) nor a list of key=value pairs"),
        (
            "postgres://127.0.0.1/app?sslmode=strict",
            "has sslmode=strict; it takes disable, prefer, require, verify-ca or verify-full",
        ),
        ("postgres://127.0.0.1/app?sslmode=verify-ca", "has sslmode=verify-ca without sslrootcert=FILE"),
        ("postgres://127.0.0.1/app?sslmode=require&sslrootcert=system", "has sslrootcert=system with sslmode=require"),
        (
            "postgres://127.0.0.1/app?sslmode=verify-full&sslrootcert=/no/ca.pem",
            "has sslrootcert=/no/ca.pem, which cannot be used",
        ),
        ("postgres://127.0.0.1/app?schema=public", "is not understood: unknown option `schema`"),
        ("postgres://127.0.0.1/app?sslcert=/x", "has sslcert: client certificates are not supported"),
    ] {
        let found = mistakes("", &[("DATABASE_URL", wrong)]);
        assert!(
            found.len() == 1 && found[0].starts_with(&format!("DATABASE_URL: database_url {wanted}")),
            "{wrong}: {found:#?}"
        );
    }
}
