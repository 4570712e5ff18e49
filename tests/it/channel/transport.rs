//! Providers that misbehave below HTTP: nothing is sent twice unnoticed, nothing takes a permit or the
//! memory for longer than its limit.

use std::sync::Arc;
use std::time::Duration;

use outboxd::channel::{Cause, Outcome};
use outboxd::retry::Failure;

use super::{LONG, Note, assert_sent, channel, config, failed, in_time};
use crate::support::provider::{Provider, Reply};

#[tokio::test]
async fn a_reset_after_the_full_request_is_unknown_and_not_repeated() {
    for fault in [Reply::reset(), Reply::close()] {
        let provider = Provider::start();
        provider.answer(fault);
        let failed = failed(channel(&config(&provider.url("/"))).send(&Note::to("user-1").attempt(1)).await);
        assert_eq!((failed.failure, failed.cause), (Failure::Ambiguous, Cause::NoAnswer), "{}", failed.error);
        assert_eq!(provider.count(), 1);
    }
}

#[tokio::test]
async fn a_reset_on_a_reused_connection_is_unknown_and_not_repeated() {
    for fault in [Reply::reset(), Reply::close()] {
        let provider = Provider::start();
        let channel = channel(&config(&provider.url("/")));
        provider.script([Reply::ok(), fault]);
        assert_sent(&channel.send(&Note::to("user-1").attempt(1)).await);
        let failed = failed(channel.send(&Note::to("user-1").attempt(2)).await);
        assert_eq!((failed.failure, failed.cause), (Failure::Ambiguous, Cause::NoAnswer), "{}", failed.error);
        assert_eq!((provider.count(), provider.connections()), (2, 1), "the second used the first's connection");
    }
}

#[tokio::test]
async fn a_close_that_races_the_next_request_never_doubles_it() {
    let provider = Provider::start();
    provider.answer(Reply::ok().then_close());
    let channel = channel(&config(&provider.url("/")));
    let mut sent = 0;
    for n in 0..300 {
        let mut note = Note::to("user-1");
        note.webhook_id = format!("ntf-race-{n}");
        let outcome = channel.send(&note.attempt(1)).await;
        let arrived = provider.calls_of(&note.webhook_id).len();
        match outcome {
            Outcome::Short(shortage) => panic!("{shortage:?}"),
            Outcome::Sent { .. } => {
                sent += 1;
                assert_eq!(arrived, 1);
            }
            Outcome::Failed(failed) if failed.failure == Failure::Ambiguous => assert!(arrived <= 1),
            Outcome::Failed(failed) => assert_eq!((failed.failure, arrived), (Failure::Transient, 0)),
        }
    }
    assert!(sent > 150, "most get through on a fresh connection, {sent} did");
}

#[tokio::test]
async fn connections_are_kept_and_used_again() {
    let provider = Provider::start();
    provider.answer(Reply::ok().body("{\"ok\": true}"));
    let channel = channel(&config(&provider.url("/")));
    for attempt in 1..=50 {
        assert_sent(&channel.send(&Note::to("user-1").attempt(attempt)).await);
    }
    assert_eq!((provider.count(), provider.connections()), (50, 1));
}

#[tokio::test]
async fn a_body_of_one_byte_per_second_takes_no_more_than_the_timeout() {
    let provider = Provider::start();
    let mut config = config(&provider.url("/"));
    provider.script([Reply::drip(200), Reply::drip(503)]);
    // A 2xx is final when its head is there.
    config.timeout = LONG;
    assert_sent(&in_time(channel(&config).send(&Note::to("user-1").attempt(1))).await);
    config.timeout = Duration::from_secs(2);
    let failed = failed(in_time(channel(&config).send(&Note::to("user-1").attempt(2))).await);
    assert_eq!((failed.failure, failed.status), (Failure::Transient, Some(503)), "the status is known");
    assert!(failed.excerpt.unwrap().starts_with('x'));
    assert_eq!(provider.count(), 2);
}

#[tokio::test]
async fn an_endless_body_is_read_to_the_limit_and_abandoned() {
    let provider = Provider::start();
    let mut config = config(&provider.url("/"));
    config.timeout = LONG;
    let channel = channel(&config);
    provider.script([Reply::endless(200), Reply::endless(500)]);
    assert_sent(&in_time(channel.send(&Note::to("user-1").attempt(1))).await);
    let failed = failed(in_time(channel.send(&Note::to("user-1").attempt(2))).await);
    assert_eq!(failed.excerpt.unwrap().len(), 1024);
    provider.wait_until_closed(Duration::from_secs(10)).await;
    // What the kernel buffers on both sides comes on top of the 64 KiB read.
    assert!(provider.streamed() < 32 << 20, "{} bytes", provider.streamed());
}

#[tokio::test]
async fn a_gzip_bomb_is_never_unpacked() {
    let provider = Provider::start();
    let channel = channel(&config(&provider.url("/")));
    provider.script([Reply::gzip_bomb(200), Reply::gzip_bomb(400)]);
    assert_sent(&channel.send(&Note::to("user-1").attempt(1)).await);
    let excerpt = failed(channel.send(&Note::to("user-1").attempt(2)).await).excerpt.unwrap();
    assert!(excerpt.starts_with('\u{fffd}') && excerpt.chars().count() <= 1024, "packed as it came: {excerpt:?}");
}

#[tokio::test]
async fn a_certificate_nobody_vouches_for_is_not_trusted() {
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(certified.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key)
        .unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut session = rustls::ServerConnection::new(Arc::new(tls)).unwrap();
        session.complete_io(&mut stream).unwrap_err().to_string()
    });
    let channel = channel(&config(&format!("https://localhost:{port}/")));
    let failed = failed(channel.send(&Note::to("user-1").attempt(1)).await);
    assert_eq!((failed.failure, failed.cause), (Failure::Transient, Cause::Connect));
    assert!(failed.error.contains("certificate"), "{}", failed.error);
    assert!(server.join().unwrap().contains("alert"), "the handshake was refused by us");
}
