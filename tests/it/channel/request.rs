//! What a request carries.

use http::header::{HeaderMap, HeaderName};
use outboxd::channel::{Cause, Channel};
use outboxd::config::Method;
use outboxd::retry::Failure;
use standardwebhooks::Webhook;

use super::{Note, assert_sent, channel, config, failed};
use crate::support::provider::{Call, Provider};

const OLD: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const NEW: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

fn header_map(call: &Call) -> HeaderMap {
    call.headers().map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap())).collect()
}

#[tokio::test]
async fn a_request_carries_its_identity_attempt_and_trace() {
    let provider = Provider::start();
    let channel = channel(&config(&provider.url("/v1/send")));
    let note = Note::to("user-1").headers(r#"{"traceparent": "00-abc-def-01"}"#);
    assert_sent(&channel.send(&note.attempt(3)).await);
    let call = &provider.ledger()[0];
    assert_eq!((call.method.as_str(), call.path.as_str()), ("POST", "/v1/send"));
    assert_eq!(call.header("webhook-id"), Some("ntf-test-7-1700000000000000"));
    assert_eq!(call.header("idempotency-key"), Some("ntf-test-7-1700000000000000:push"));
    assert_eq!(call.header("outboxd-attempt"), Some("3"));
    assert_eq!(call.header("traceparent"), Some("00-abc-def-01"));
    assert_eq!(call.header("user-agent"), Some(concat!("outboxd/", env!("CARGO_PKG_VERSION"))));
    assert_eq!(call.header("content-type"), Some("application/json"));
    assert_eq!(call.header("host"), Some(provider.addr().to_string().as_str()));
    assert_eq!(call.header("content-length"), Some(call.body.len().to_string().as_str()));
    assert_eq!(call.header("accept"), Some("*/*"));
    assert_eq!(call.header("accept-encoding"), None, "nothing may come back compressed");
    assert_eq!(call.header("webhook-signature"), None, "no secret, no signature");
    assert_eq!(call.header("transfer-encoding"), None);
}

#[tokio::test]
async fn the_default_body_is_byte_for_byte_the_same_on_every_attempt() {
    let provider = Provider::start();
    let channel = channel(&config(&provider.url("/")));
    let note = Note::to("a \"quoted\" name");
    for attempt in 1..=3 {
        assert_sent(&channel.send(&note.attempt(attempt)).await);
    }
    let bodies: Vec<String> = provider.ledger().into_iter().map(|call| String::from_utf8(call.body).unwrap()).collect();
    let expected = concat!(
        r#"{"id":7,"topic":"quiz","recipient":"a \"quoted\" name","#,
        r#""payload":{"text": "hello", "n": 12345678901234567890123},"created_at":"2023-11-14T22:13:20.000000Z"}"#
    );
    assert_eq!(bodies, [expected; 3]);
}

#[tokio::test]
async fn every_secret_of_a_rotation_verifies_on_its_own() {
    let provider = Provider::start();
    let mut config = config(&provider.url("/"));
    config.secrets = vec![NEW.into(), OLD.into()];
    assert_sent(&channel(&config).send(&Note::to("user-1").attempt(1)).await);
    let call = &provider.ledger()[0];
    for secret in [OLD, NEW] {
        Webhook::new(secret).unwrap().verify(&call.body, &header_map(call)).expect("a valid signature");
    }
    let other = Webhook::new("whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA").unwrap();
    assert!(other.verify(&call.body, &header_map(call)).is_err());
    assert_eq!(call.header("webhook-signature").unwrap().split(' ').count(), 2);
}

#[tokio::test]
async fn templates_make_url_headers_and_body() {
    let provider = Provider::start();
    let mut config = config(&provider.url("/send/{{ topic }}?to={{ recipient|urlencode }}"));
    config.method = Method::Put;
    config.headers.insert("Authorization".to_owned(), "Bearer s3cret".into());
    config.headers.insert("X-Note".to_owned(), "{{ id }}/{{ webhook_id }}/{{ headers.tenant }}".into());
    config.body = Some(r#"{"to": {{ recipient|tojson }}, "text": {{ payload.text|tojson }}}"#.to_owned());
    let note = Note::to("a&b \"c\"").payload(r#"{"text": "line\nbreak"}"#).headers(r#"{"tenant": "t1"}"#);
    assert_sent(&channel(&config).send(&note.attempt(1)).await);
    let call = &provider.ledger()[0];
    assert_eq!((call.method.as_str(), call.path.as_str()), ("PUT", "/send/quiz?to=a%26b%20%22c%22"));
    assert_eq!(call.header("authorization"), Some("Bearer s3cret"));
    assert_eq!(call.header("x-note"), Some("7/ntf-test-7-1700000000000000/t1"));
    assert_eq!(call.json(), serde_json::json!({"to": "a&b \"c\"", "text": "line\nbreak"}));
}

#[tokio::test]
async fn a_url_arrives_as_its_standard_writes_it() {
    let provider = Provider::start();
    let mut config = config("{{ recipient }}");
    config.allow_private = true;
    let channel = channel(&config);
    for (written, arrives) in [
        ("", "/"),
        ("/?", "/?"),
        ("/x?y=1#z", "/x?y=1"),
        ("/%7B%22{}|^[]'`\\", "/%7B%22%7B%7D|^[]'%60/"),
        ("/?q={}|^`'\"\\", "/?q={}|^`%27%22\\"),
        ("/ü?ü", "/%C3%BC?%C3%BC"),
    ] {
        assert_sent(&channel.send(&Note::to(&provider.url(written)).attempt(1)).await);
        assert_eq!(provider.ledger().last().unwrap().path, arrives, "{written}");
    }
    for host in ["a{b}.example", "a`b.example"] {
        let failed = failed(channel.send(&Note::to(&format!("http://{host}/")).attempt(1)).await);
        assert_eq!((failed.failure, failed.cause), (Failure::Permanent, Cause::Template), "{}", failed.error);
        config.url = format!("http://{host}/");
        assert!(Channel::new("push", &config).unwrap_err().to_string().contains("no request can hold"));
    }
}

#[tokio::test]
async fn a_missing_field_is_permanent_and_named_and_calls_nobody() {
    let provider = Provider::start();
    let mut config = config(&provider.url("/"));
    config.body = Some("{\n\"text\": {{ payload.title|tojson }}}".to_owned());
    let failed = failed(channel(&config).send(&Note::to("user-1").attempt(1)).await);
    assert_eq!((failed.failure, failed.cause), (Failure::Permanent, Cause::Template));
    assert!(failed.error.contains("template body"), "{}", failed.error);
    assert!(failed.error.contains("payload.title"), "{}", failed.error);
    assert!(failed.error.contains("line 2"), "{}", failed.error);
    assert_eq!(provider.count(), 0);
}

#[test]
fn a_variable_that_cannot_exist_is_refused_at_start() {
    let mut config = config("https://a.example/{{ recipent }}");
    let error = Channel::new("push", &config).unwrap_err().to_string();
    assert!(error.contains("channel push") && error.contains("`recipent`"), "{error}");
    config.url = "https://a.example/{{ recipient".to_owned();
    let error = Channel::new("push", &config).unwrap_err().to_string();
    assert!(error.contains("template url: syntax error"), "{error}");
}

#[tokio::test]
async fn a_header_that_data_would_break_in_two_is_refused() {
    let provider = Provider::start();
    let mut config = config(&provider.url("/"));
    config.headers.insert("X-Name".to_owned(), "{{ recipient }}".into());
    let channel = channel(&config);
    for recipient in ["a\r\nX-Admin: 1", "a\nb", "a\rb", "a\0b"] {
        let failed = failed(channel.send(&Note::to(recipient).attempt(1)).await);
        assert_eq!((failed.failure, failed.cause), (Failure::Permanent, Cause::Template));
        assert_eq!(failed.error, "template headers.X-Name: a line break or control character in a header");
    }
    assert_eq!(provider.count(), 0);
}

#[tokio::test]
async fn a_runaway_template_is_stopped() {
    let mut config = config("http://127.0.0.1:9/");
    for (body, reason) in [
        ("{% for a in range(10000) %}{% for b in range(10000) %}{% endfor %}{% endfor %}", "more than 1000000 steps"),
        ("{% for a in range(1000) %}{{ payload.big }}{% endfor %}", "more than 4194304 bytes"),
    ] {
        config.body = Some(body.to_owned());
        let note = Note::to("user-1").payload(&format!(r#"{{"big": "{}"}}"#, "x".repeat(10_000)));
        let failed = failed(channel(&config).send(&note.attempt(1)).await);
        assert_eq!((failed.failure, failed.cause), (Failure::Permanent, Cause::Template));
        assert!(failed.error.contains(reason), "{}", failed.error);
    }
}

#[test]
fn headers_that_frame_or_sign_the_message_are_not_the_operators() {
    for name in ["Content-Length", "host", "Transfer-Encoding", "webhook-id", "Webhook-Signature", "bad name"] {
        let mut config = config("https://a.example/");
        config.headers.insert(name.to_owned(), "1".into());
        let error = Channel::new("push", &config).unwrap_err().to_string();
        assert!(error.contains(name), "{error}");
    }
}

#[test]
fn no_secret_is_ever_printed() {
    let mut config = config("https://a.example/");
    config.secrets = vec![OLD.into()];
    config.headers.insert("Authorization".to_owned(), "Bearer s3cret-token".into());
    config.headers.insert("X-Key".to_owned(), "s3cret-token-{{ id }}".into());
    config.proxy = Some("http://u:s3cret-token@egress.example".into());
    let printed = format!("{:?}", channel(&config));
    assert!(!printed.contains("s3cret-token") && !printed.contains("MfKQ9r8"), "{printed}");
    config.secrets = vec!["whsec_!!s3cret-token".into()];
    let error = Channel::new("push", &config).unwrap_err().to_string();
    assert!(error.contains("secret 1") && !error.contains("s3cret"), "{error}");
    config.secrets.clear();
    for proxy in ["u:s3cret-token@egress", "socks5://u:s3cret-token@egress", "http://u:s3cret-token@{egress}"] {
        config.proxy = Some(proxy.into());
        let error = Channel::new("push", &config).unwrap_err().to_string();
        assert!(error.contains("proxy") && !error.contains("s3cret"), "{error}");
    }
}
