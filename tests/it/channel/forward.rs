//! The row's headers: sent on, read by a template, or refused with their name. Never dropped in silence.

use outboxd::channel::{Cause, Channel, Failed};
use outboxd::config::ChannelConfig;
use outboxd::retry::Failure;

use super::{Note, assert_sent, channel, config, failed};
use crate::support::provider::Provider;
use crate::support::sql::Sql;
use crate::support::world::{Carrier, World};

fn forwarding(provider: &Provider, entries: &[&str]) -> ChannelConfig {
    let mut config = config(&provider.url("/"));
    config.forward_headers = entries.iter().map(|entry| (*entry).to_owned()).collect();
    config
}

async fn refused(channel: &Channel, headers: &str) -> Failed {
    let failed = failed(channel.send(&Note::to("user-1").headers(headers).attempt(1)).await);
    assert_eq!((failed.failure, failed.cause), (Failure::Permanent, Cause::Template), "{}", failed.error);
    failed
}

#[tokio::test]
async fn headers_that_the_channel_names_are_sent_on() {
    let provider = Provider::start();
    let channel = channel(&forwarding(&provider, &["X-*", "baggage"]));
    let row = r#"{"X-Request-Id": "r1", "x-tenant": "카페", "Baggage": "a=1", "traceparent": "00-a-b-01", "tracestate": "v=1"}"#;
    assert_sent(&channel.send(&Note::to("user-1").headers(row).attempt(1)).await);
    let call = &provider.ledger()[0];
    for (name, value) in
        [("x-request-id", "r1"), ("baggage", "a=1"), ("traceparent", "00-a-b-01"), ("tracestate", "v=1")]
    {
        assert_eq!(call.header(name), Some(value), "{name}");
    }
    assert!(call.header("x-tenant").is_some());
    assert_sent(&channel.send(&Note::to("user-1").headers("{}").attempt(1)).await);
}

#[tokio::test]
async fn a_header_that_nobody_takes_fails_the_attempt_with_its_name() {
    let provider = Provider::start();
    let plain = channel(&config(&provider.url("/")));
    assert_eq!(
        refused(&plain, r#"{"X-Tenant": "t1", "traceparent": "00-a-b-01"}"#).await.error,
        "header x-tenant is not forwarded by channel push (forward_headers)"
    );
    let mut config = forwarding(&provider, &["*"]);
    config.headers.insert("X-Key".to_owned(), "s3cret".into());
    config.headers.insert("X-Topic".to_owned(), "{{ topic }}".into());
    let channel = channel(&config);
    for never in [
        "Authorization",
        "Host",
        "Connection",
        "Keep-Alive",
        "Transfer-Encoding",
        "TE",
        "Trailer",
        "Upgrade",
        "Content-Type",
        "content-length",
        "Cookie",
        "Proxy-Authorization",
        "webhook-id",
        "Webhook-Signature",
        "Idempotency-Key",
        "outboxd-attempt",
    ] {
        let error = refused(&channel, &format!(r#"{{"{never}": "1"}}"#)).await.error;
        let name = never.to_ascii_lowercase();
        assert_eq!(error, format!("header {name} is never taken from a row; channel push may set it itself"));
    }
    for own in ["x-key", "X-Topic", "User-Agent", "accept"] {
        let error = refused(&channel, &format!(r#"{{"{own}": "1"}}"#)).await.error;
        assert_eq!(error, format!("header {} is set by channel push itself", own.to_ascii_lowercase()));
    }
    for (row, reason) in [
        (r#"{"a b": "1"}"#.to_owned(), "header a b is no header name"),
        (r#"{"x-a": "1\r\nhost: evil"}"#.to_owned(), "header x-a: a line break or control character in it"),
        (r#"{"X-A": "1", "x-a": "2"}"#.to_owned(), "header x-a is given twice"),
        (format!(r#"{{"x-a": "{}"}}"#, "1".repeat(9000)), "the row's headers have more than 8192 bytes"),
        (r#"{"x-a": 1}"#.to_owned(), "headers are not an object of strings"),
    ] {
        assert_eq!(refused(&channel, &row).await.error, reason);
    }
    assert_eq!(provider.count(), 0, "nobody was called");
}

#[tokio::test]
async fn a_header_that_a_template_reads_is_not_dropped_and_need_not_be_sent() {
    let provider = Provider::start();
    let mut config = forwarding(&provider, &[]);
    config.body = Some(r#"{{ headers["X-Tenant"] }} {{ headers.lang|default("en") }}"#.to_owned());
    let reader = channel(&config);
    assert_sent(&reader.send(&Note::to("user-1").headers(r#"{"X-Tenant": "t1", "lang": "ko"}"#).attempt(1)).await);
    let call = &provider.ledger()[0];
    assert_eq!((call.body.as_slice(), call.header("x-tenant")), (&b"t1 ko"[..], None));
    let error = refused(&reader, r#"{"X-Tenant": "t1", "x-other": "1"}"#).await.error;
    assert_eq!(error, "header x-other is not forwarded by channel push (forward_headers)");
    config.body = Some("{{ headers|tojson }}".to_owned());
    let all = channel(&config);
    assert_sent(&all.send(&Note::to("user-1").headers(r#"{"anything": "1"}"#).attempt(1)).await);
}

#[tokio::test]
async fn the_record_names_the_header_that_was_not_forwarded() {
    let world = World::new(Carrier::Memory).await;
    let _instance = world.setup.start().await;
    world.run(r#"SELECT outboxd.notify('orders', 'r', '{}', headers => '{"x-tenant": "t1"}')"#).await;
    world.until_ended().await.assert_nothing_lost();
    let shown = "SELECT concat_ws(' | ', status, channel, attempts, error) FROM outboxd.notifications";
    assert_eq!(
        world.values::<String>(shown).await,
        ["FAILED | webhook | 1 | header x-tenant is not forwarded by channel webhook (forward_headers)"]
    );
    assert_eq!(world.provider.count(), 0);
}
