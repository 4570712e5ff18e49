//! What is refused, and in which words.

use outboxd::config::{Errors, Role, warnings};

use super::{BASE, config, errors, load_text};

#[test]
fn every_error_is_reported_at_once_with_its_line_and_path() {
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
    let found = errors(text, &[("OUTBOXD_WORKER_LEESE", "1m"), ("OUTBOXD_QUEUE_WINDOW", "-1")]);
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
        "OUTBOXD_QUEUE_WINDOW: queue.window is -1; it takes 1 to 1000000",
        "OUTBOXD_WORKER_LEESE: is not a variable that outboxd knows; did you mean \"OUTBOXD_WORKER_LEASE\"?",
    ];
    assert_eq!(found, wanted);
}

#[test]
fn each_channel_whose_timeout_exceeds_the_lease_is_named() {
    let channel = |name| format!("[channels.{name}]\nurl = \"https://{name}.example\"\ntimeout = \"2m\"\n");
    let found = errors(&format!("{BASE}{}{}", channel("fax"), channel("sms")), &[]);
    let named =
        |error: &String, name| error.contains(&format!("channels.{name}.timeout is 2m; it must be shorter than"));
    assert!(found.len() == 2 && named(&found[0], "fax") && named(&found[1], "sms"), "{found:?}");
}

/// What is added to the base, and the beginning of the only error that it is.
// One line a case reads as the table it is.
#[rustfmt::skip]
const WRONG: &[(&str, &str)] = &[
    ("[worker]\nlease = \"5s\"", "channels.push.timeout is 5s; it must be shorter than worker.lease (5s): lower it, or raise the lease"),
    (
        "[channels.sms]\nurl = \"https://sms.example\"\ntimeout = \"2m\"",
        "channels.sms.timeout is 2m; it must be shorter than worker.lease (1m)",
    ),
    ("[queue]\nkind = \"stream\"", "queue.kind needs Redis; set redis_url"),
    (
        "[queue]\nkind = \"streem\"",
        "queue.kind \"streem\" is none of \"stream\", \"list\", \"memory\"; did you mean \"stream\"?",
    ),
    ("[queue]\nprefix = \"a{b}\"", "queue.prefix takes letters"),
    ("[queue]\nwindow = 0", "queue.window is 0; it takes 1 to 1000000"),
    ("[queue]\nfallback_after = \"0s\"", "queue.fallback_after is 0s; it takes 1s to 1day, or \"never\""),
    ("[queue]\nfallback_after = \"off\"", "queue.fallback_after \"off\" is no duration; write a number and its unit"),
    ("[database]\npool_size = 1", "database.pool_size is 1; it takes 2 to 500"),
    ("[database]\npooler = true\n[relay]\nwakeup = \"bell\"", "relay.wakeup is bell, which needs LISTEN"),
    ("[relay]\npoll = \"0s\"", "relay.poll is 0s; it takes 1ms to 1m"),
    (
        "[relay]\nrepublish_after = \"20m\"",
        "reconcile.published_after is 10m; it must be longer than relay.republish_after (20m)",
    ),
    ("[worker]\nshort_way = true", "worker.short_way is not a key that outboxd knows"),
    ("worker = 5", "routes.default.worker is not a key"),
    ("[[channels.sms]]\nurl = \"x\"", "channels.sms is a table; write [channels.sms] with method, url"),
    ("[events]\nstream_max = 99", "events.stream_max is 99; it takes 100 to 10000000"),
    ("[retention]\nevents = \"8d\"", "retention.inbox is 7days; it must be at least retention.events (8days)"),
    ("[retention.sent]\nx = 1", "retention.sent is a value, not a table"),
    ("lease = \"5s\"", "routes.default.lease is not a key that outboxd knows; did you mean \"worker.lease\"?"),
    ("backoff = \"5s\"", "routes.default.backoff is a table; write [routes.default.backoff] with base, max, jitter"),
    (
        "backoff = { base = \"2h\" }",
        "routes.default.backoff.base is 2h; it must be at most routes.default.backoff.max (1h)",
    ),
    ("backoff = { jitter = 1.5 }", "routes.default.backoff.jitter is 1.5; it takes 0 to 1"),
    (
        "attempts_before_failover = 11",
        "routes.default.attempts_before_failover is 11; it must be at most routes.default.max_attempts (10)",
    ),
    ("[routes.a]", "routes.a.channels is missing"),
    ("[routes.a]\nchannels = []", "routes.a.channels is empty"),
    ("[routes.a]\nchannels = [\"push\", \"push\"]", "routes.a.channels names \"push\" twice"),
    ("[routes.\"order.*\"]\nchannels = [\"push\"]", "routes.\"order.*\" has a *, and routes know no patterns: write one route per topic"),
    ("[routes.order.paid]\nchannels = [\"push\"]", "routes.order is cut at its dots; a name that holds a dot is quoted: [routes.\"order.paid\"]"),
    ("[routes.order.paid.kr]\nchannels = [\"push\"]", "routes.order is cut at its dots; a name that holds a dot is quoted: [routes.\"order.paid.kr\"]"),
    ("[routes.o.a]\nchannels = [\"push\"]\n[routes.o.b]\nchannels = [\"push\"]", "routes.o is cut at its dots; a name that holds a dot is quoted: [routes.\"o.a\"], [routes.\"o.b\"]"),
    ("[channels.a]", "channels.a.url is missing"),
    ("[channels.\"a b\"]\nurl = \"https://a.example\"", "channels.\"a b\" has a name that will not do"),
    ("[channels.a]\nurl = \"https://a.example/{{ recipient\"", "channels.a.url is no template"),
    ("[channels.a]\nurl = \"https://a.example\"\nbody = \"{% if %}\"", "channels.a.body is no template"),
    (
        "[channels.a]\nurl = \"https://a.example\"\nbody = '{\"text\": {{ payload.text }}}'",
        "channels.a.body puts {{ payload.text }} into JSON as it is; write {{ payload.text|tojson }}",
    ),
    (
        "[channels.a]\nurl = \"https://a.example\"\nbody = '{\"text\": \"{{ payload.text|tojson }}\"}'",
        "channels.a.body puts {{ payload.text|tojson }} between quotes, and tojson writes quotes of its own",
    ),
    (
        "[channels.a]\nurl = \"https://a.example\"\nbody = '{\"text\": {{ payload.text|tojson }},}'",
        "channels.a.body gives no JSON: trailing comma in line 1 of it; mend it, or say what it is with content_type",
    ),
    (
        "[channels.a]\nurl = \"https://a.example\"\naccepted_when = \"response.sent\"",
        "channels.a.accepted_when has no {{ }}, so it says the same of every answer; write \"{{ response.sent }}\"",
    ),
    (
        "[channels.a]\nurl = \"https://a.example\"\naccepted_when = \"true\"",
        "channels.a.accepted_when has no {{ }}, so it says the same of every answer; write \"{{ response.ok }}\"",
    ),
    (
        "[channels.a]\nurl = \"https://a.example\"\nbody = '{\"key\": {{ with.kye|tojson }}}'\nwith = { key = \"k\" }",
        "channels.a.body reads with.kye, which the channel has not; did you mean \"key\"?",
    ),
    (
        "[channels.a]\nurl = \"https://a.example\"\nheaders = { x-sign = \"{{ request.body|sha256|hxe }}{{ with.key }}\" }",
        "channels.a.headers.x-sign is no template: there is no filter `hxe`; did you mean",
    ),
    (
        "[channels.a]\nurl = \"https://a.example\"\nbody = '{\"n\": {{ request.method|tojson }}}'",
        "channels.a.body is no template: there is no variable `request`",
    ),
    ("[channels.a]\nurl = \"https://a.example\"\nprovider_id = \"response.id\"", "channels.a.provider_id has no {{ }}"),
    ("[channels.a]\nurl = \"https://a.example/{{ recipent }}\"", "channels.a.url is no template: there is no variable `recipent`; did you mean"),
    ("[channels.a]\nurl = \"https://a.example\"\nbody = \"{% if topic %}{{ topic|tojso }}{% endif %}\"", "channels.a.body is no template: there is no filter `tojso`; did you mean \"tojson\"?"),
    ("[channels.a]\nurl = \"https://a.example\"\nheaders = { A = \"{{ x }}\" }", "channels.a.headers.A is no template: there is no variable `x`"),
    ("[channels.a]\nurl = \"https://a.example\"\naccepted_when = \"{{ response.ok\"", "channels.a.accepted_when is no template: syntax error"),
    ("[channels.a]\nurl = \"https://a.example\"\naccepted_when = \"{{ recipient }}\"", "channels.a.accepted_when is no template: there is no variable `recipient`; there are response"),
    ("[channels.a]\nurl = \"https://a.example\"\nprovider_id = \"{{ response.id is numbr }}\"", "channels.a.provider_id is no template: there is no test `numbr`"),
    ("[channels.a]\nurl = \"https://a.example\"\nforward_headers = [\"a b\"]", "channels.a.forward_headers names \"a b\", which is no header name; write"),
    ("[channels.a]\nurl = \"https://a.example\"\nforward_headers = [\"content-*\"]", "channels.a.forward_headers names \"content-*\", which is never taken from a row"),
    (
        "[channels.a]\nurl = \"https://a.example\"\nheaders = { X-A = \"1\" }\nforward_headers = [\"x-a\"]",
        "channels.a.forward_headers names \"x-a\", which channels.a.headers.X-A sets",
    ),
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
    ("[channels.a]\nurl = \"https://a.example\"\nproxy = \"egress\"", "channels.a.proxy is no URL: relative URL"),
    ("[channels.a]\nurl = \"https://a.example\"\nproxy = \"egress:4750\"", "channels.a.proxy must begin with http://"),
    ("[channels.a]\nurl = \"https://a.example\"\nproxy = \"socks5://e\"", "channels.a.proxy must begin with http://"),
    ("[channels.a]\nurl = \"https://a.example\"\nproxy = \"http://e/x\"", "channels.a.proxy takes host and port only"),
    ("[channels.a]\nurl = \"https://a.example\"\nproxy = \"http://{e}/\"", "channels.a.proxy is no URL: invalid"),
    ("[telemetry]\notlp_endpoint = \"collector:4318\"", "telemetry.otlp_endpoint must begin with http:// or https://"),
    ("[telemetry]\notlp_endpoint = \"http://\"", "telemetry.otlp_endpoint is no URL: empty host"),
    (
        "[telemetry]\notlp_endpoint = \"http://c:4318/?token=x\"",
        "telemetry.otlp_endpoint takes host, port and path only; put credentials into telemetry.otlp_headers",
    ),
    ("[telemetry]\notlp_headers = \"Bearer x\"", "telemetry.otlp_headers has a header without its =; write"),
    ("[telemetry]\notlp_headers = [\"a b=x\"]", "telemetry.otlp_headers has a header whose name is none"),
    ("[telemetry]\notlp_headers = [\"Host=x\"]", "telemetry.otlp_headers has host, which is set by outboxd itself"),
    ("[telemetry]\notlp_sample_ratio = 2", "telemetry.otlp_sample_ratio is 2; it takes 0 to 1"),
    ("[telemetry]\nservice_name = \" \"", "telemetry.service_name is empty"),
    ("[channels.a]\nurl = \"https://a.example\"\nrate_limit = \"fast\"", "channels.a.rate_limit \"fast\" is no rate"),
    (
        "[channels.a]\nurl = \"https://a.example\"\nresponse_bytes_max = \"1KB\"",
        "channels.a.response_bytes_max is 1KB; it takes 1024 to 16777216 bytes",
    ),
    ("[channels.a]\nurl = \"https://a.example\"\nallow = [\"10/8\"]", "channels.a.allow \"10/8\" is no network"),
];

#[test]
fn each_error_says_what_is_wrong_and_what_to_do() {
    for (added, beginning) in WRONG {
        let found = errors(&format!("{BASE}{added}\n"), &[]);
        assert_eq!(found.len(), 1, "{added}: {found:#?}");
        let text = found[0]
            .split_once(": ")
            .filter(|(at, _)| at.starts_with("outboxd.toml:"))
            .map_or(found[0].as_str(), |(_, text)| text);
        assert!(text.starts_with(beginning), "{added}: {text}");
    }
}

#[test]
fn a_route_may_be_named_after_any_topic() {
    for topic in ["주문.완료", "order paid", "Bestellung/größer"] {
        let found = config(&format!("{BASE}[routes.\"{topic}\"]\nchannels = [\"push\"]\n"), &[]);
        assert!(found.routes.contains_key(topic), "{topic}");
    }
}

#[test]
fn everything_that_a_channels_templates_cannot_name_is_told_at_once() {
    let added = "[channels.a]\nurl = \"https://a.example/{{ x }}\"\nbody = \"{{ y|z }}\"\naccepted_when = \"{{ id }}\"\nprovider_id = \"{{\"";
    let found = errors(&format!("{BASE}{added}\n"), &[]);
    assert_eq!(found.len(), 5, "{found:#?}");
}

#[test]
fn syntax_errors_do_not_hide_one_another() {
    let found = errors("database_url = \n[worker]\nlease = \"60s\nconcurency = 5\n", &[]);
    assert_eq!(found.len(), 3, "nothing is called missing that the errors may hide: {found:#?}");
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
        assert_eq!(errors(BASE, &[(name, value)]), [wanted]);
    }
    let both = errors(BASE, &[("OUTBOXD_HTTP_TOKEN", "a"), ("OUTBOXD_HTTP_TOKEN_FILE", "/a")]);
    assert_eq!(
        both,
        ["OUTBOXD_HTTP_TOKEN: http_token is given twice: unset either OUTBOXD_HTTP_TOKEN or OUTBOXD_HTTP_TOKEN_FILE"]
    );
}

#[test]
fn an_unknown_flag_key_is_an_error_too() {
    let Errors(found) =
        load_text(BASE, &[], &[("worker.leese", "1m"), ("routes.\"a.b\".channels", "push")]).map(|_| ()).unwrap_err();
    assert_eq!(found.len(), 1);
    assert_eq!(
        found[0].to_string(),
        "--set: worker.leese is not a key that outboxd knows; did you mean \"worker.lease\"?"
    );
}

#[test]
fn database_urls_and_key_value_strings_are_understood() {
    for good in [
        "postgres://a:b@127.0.0.1:5432/app?sslmode=require",
        "postgresql://127.0.0.1/app?sslmode=verify-full&connect_timeout=3",
        "host=127.0.0.1 user=app password='a b\\'c' dbname=app sslmode=disable",
        "postgres:///app?host=/run/postgresql&sslmode=prefer",
        "postgres://127.0.0.1/app?schema=public&pool_size=5&prepareThreshold=0&charset=utf8&ssl=true",
        "host=127.0.0.1 dbname=app schema=public",
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
            "has sslrootcert=/no/ca.pem, which cannot be read",
        ),
        (
            "postgres://127.0.0.1/app?sslmod=require",
            "has sslmod, which outboxd does not know; did you mean \"sslmode\"?",
        ),
        ("host=127.0.0.1 sslcrl=/x", "has sslcrl, which outboxd does not know"),
        ("postgres://127.0.0.1/app?require_auth=scram-sha-256", "has require_auth, which outboxd does not know"),
        (
            "postgres://a:hu@nter@127.0.0.1/app",
            "is torn apart by a character of its user or password; write @ there as %40",
        ),
        ("postgres://a:hu?nter@127.0.0.1/app", "is torn apart by a character of its user or password"),
        ("postgres://127.0.0.1/app?sslcert=/x", "has sslcert: client certificates are not supported"),
    ] {
        let found = errors("", &[("DATABASE_URL", wrong)]);
        assert!(
            found.len() == 1 && found[0].starts_with(&format!("DATABASE_URL: database_url {wanted}")),
            "{wrong}: {found:#?}"
        );
    }
}

#[test]
fn ignored_parameters_are_named_and_their_values_are_not() {
    let said = |url: &str| warnings(&config(BASE, &[("DATABASE_URL", url)]));
    assert_eq!(said("postgres://127.0.0.1/app?options=-c%20jit%3Doff&application_name=x&sslmode=require"), [""; 0]);
    assert_eq!(
        said("postgres://127.0.0.1/app?schema=hunter2&api_key=hunter2"),
        ["database_url has parameters of other tools, ignored: schema, api_key"]
    );
    assert_eq!(said("postgres://127.0.0.1/app?pgbouncer=false").len(), 1, "no pooler is spoken of");
}

#[test]
fn the_in_process_queue_refuses_split_roles() {
    let all = Role::ALL.into_iter().collect();
    let workers = [Role::Worker].into_iter().collect();
    let alone = load_text(BASE, &[], &[]).unwrap();
    assert!(alone.validate_roles(&all).is_ok());
    let refused = alone.validate_roles(&workers).unwrap_err().to_string();
    assert!(refused.contains("--role leaves out producer, relay"), "{refused}");
    let with_redis = load_text(BASE, &[("REDIS_URL", "redis://127.0.0.1")], &[]).unwrap();
    assert!(with_redis.validate_roles(&workers).is_ok());
}

#[test]
fn a_worker_needs_a_route_and_other_commands_do_not() {
    let bare = load_text("", &[("DATABASE_URL", "postgres://127.0.0.1/app")], &[]).unwrap();
    let refused = bare.validate_roles(&Role::ALL.into_iter().collect()).unwrap_err().to_string();
    assert!(refused.contains("no route leads anywhere"), "{refused}");
}

#[test]
fn tokens_are_long_told_apart_and_say_what_they_may_do() {
    let text = format!(
        "{BASE}[tokens.a]\ntoken = \"short\"\nscope = \"admin\"\n[tokens.b]\ntoken = \"with a space in its middle\"\nscope = \"read\"\n\
         topics = [\"*.paid\", \"\"]\n[tokens.c]\n[tokens.d]\ntoken = \"the-same-as-http-token\"\nscope = \"write\"\ntopics = []\n\
         [tokens.local]\ntoken = \"another-long-token\"\nscope = \"read\"\n"
    );
    let found = errors(&text, &[("OUTBOXD_HTTP_TOKEN", "the-same-as-http-token")]).join("\n");
    for wanted in [
        "tokens.a.token has fewer than 16 characters; make one with: openssl rand -hex 32",
        "tokens.a.scope \"admin\" is none of \"read\", \"write\", \"operate\"",
        "tokens.b.token has a character that a header cannot hold",
        "tokens.b.topics has \"*.paid\"; a * stands at the end alone, as in \"order.*\"",
        "tokens.b.topics has \"\", which is no topic",
        "tokens.c.token is missing; say what its callers present",
        "tokens.c.scope is missing; say what it may do",
        "tokens.d.token is the same as http_token; each needs its own",
        "tokens.d.topics is empty; leave it out for all topics",
        "tokens.local has a name that outboxd uses itself; choose another",
    ] {
        assert!(found.contains(wanted), "{wanted}\n\n{found}");
    }
    assert_eq!(found.lines().count(), 10, "{found}");
    assert!(!found.contains("short") && !found.contains("same-as-http-token"), "{found}");
}

#[test]
fn a_named_token_is_enough_off_loopback() {
    let text =
        format!("http_addr = \"0.0.0.0:8080\"\n{BASE}[tokens.a]\ntoken = \"a-long-enough-token\"\nscope = \"read\"\n");
    assert_eq!(config(&text, &[]).tokens.len(), 1);
}
