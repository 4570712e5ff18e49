//! What each answer, and each missing answer, means.

use std::time::{Duration, SystemTime};

use outboxd::channel::{Cause, Outcome};
use outboxd::retry::Failure;
use tokio::net::TcpListener;

use super::{LONG, Note, assert_sent, channel, config, failed, in_time};
use crate::support::process::free_port;
use crate::support::provider::{Provider, Reply};

#[tokio::test]
async fn each_status_means_what_the_design_says() {
    let provider = Provider::start();
    let channel = channel(&config(&provider.url("/")));
    let note = Note::to("user-1");
    for status in [200, 201, 202, 204, 299] {
        provider.script([Reply::status(status)]);
        let outcome = channel.send(&note.attempt(1)).await;
        assert!(matches!(outcome, Outcome::Sent { status: got, .. } if got == status), "{outcome:?}");
    }
    let transient = [408, 409, 425, 429, 500, 502, 503, 504].map(|status| (status, Failure::Transient));
    let permanent = [301, 302, 304, 307, 308, 400, 401, 403, 404, 410, 422].map(|status| (status, Failure::Permanent));
    for (status, expected) in transient.into_iter().chain(permanent) {
        provider.script([Reply::status(status).body("because")]);
        let failed = failed(channel.send(&note.attempt(1)).await);
        assert_eq!((failed.failure, failed.cause, failed.status), (expected, Cause::Status, Some(status)));
        assert_eq!(failed.is_unauthorized(), matches!(status, 401 | 403));
        if status != 304 {
            assert_eq!(failed.excerpt.as_deref(), Some("because"), "{status}");
        }
        assert!(failed.error.starts_with(&format!("status {status}")), "{}", failed.error);
    }
}

#[tokio::test]
async fn a_refused_connection_is_transient() {
    let channel = channel(&config(&format!("http://127.0.0.1:{}/secret-path", free_port())));
    let failed = failed(channel.send(&Note::to("user-1").attempt(1)).await);
    assert_eq!((failed.failure, failed.cause, failed.status), (Failure::Transient, Cause::Connect, None));
    assert!(failed.error.contains("refused") && !failed.error.contains("secret-path"), "{}", failed.error);
}

#[tokio::test]
async fn a_timeout_before_the_request_went_out_is_transient() {
    // A listener that never accepts and whose backlog is full: connecting hangs.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener: TcpListener = socket.listen(1).unwrap();
    let addr = listener.local_addr().unwrap();
    let mut fillers = Vec::new();
    while let Ok(Ok(stream)) =
        tokio::time::timeout(Duration::from_millis(500), tokio::net::TcpStream::connect(addr)).await
    {
        fillers.push(stream);
    }
    let mut config = config(&format!("http://{addr}/"));
    config.connect_timeout = Duration::from_millis(300);
    let first = failed(channel(&config).send(&Note::to("user-1").attempt(1)).await);
    assert_eq!((first.failure, first.cause), (Failure::Transient, Cause::Timeout), "{}", first.error);
    config.connect_timeout = Duration::from_secs(5);
    config.timeout = Duration::from_millis(300);
    let second = failed(channel(&config).send(&Note::to("user-1").attempt(1)).await);
    assert_eq!((second.failure, second.cause), (Failure::Transient, Cause::Timeout), "{}", second.error);
}

#[tokio::test]
async fn a_timeout_after_the_request_went_out_is_unknown() {
    let provider = Provider::start();
    provider.answer(Reply::hang());
    let mut config = config(&provider.url("/"));
    // The first byte has a limit of its own.
    config.timeout = LONG;
    config.first_byte_timeout = Duration::from_millis(200);
    let failed = failed(in_time(channel(&config).send(&Note::to("user-1").attempt(1))).await);
    assert_eq!((failed.failure, failed.cause), (Failure::Ambiguous, Cause::Timeout));
    assert_eq!(failed.error, "timeout after the request went out");
    assert_eq!(provider.count(), 1);
}

#[tokio::test]
async fn an_answer_that_is_not_http_is_unknown() {
    let provider = Provider::start();
    provider.answer(Reply::raw(b"SSH-2.0-OpenSSH\r\n\r\n"));
    let failed = failed(channel(&config(&provider.url("/"))).send(&Note::to("user-1").attempt(1)).await);
    assert_eq!((failed.failure, failed.cause), (Failure::Ambiguous, Cause::NoAnswer));
}

#[tokio::test]
async fn retry_after_is_read_in_seconds_and_as_a_date_and_is_capped() {
    let provider = Provider::start();
    let channel = channel(&config(&provider.url("/")));
    let hour = Duration::from_secs(3600);
    let in_a_minute = httpdate(SystemTime::now() + Duration::from_secs(60));
    let cases = [
        ("7".to_owned(), Some(Duration::from_secs(7)..=Duration::from_secs(7))),
        ("99999999999999999999".to_owned(), Some(hour..=hour)),
        (in_a_minute, Some(Duration::from_secs(55)..=Duration::from_secs(60))),
        ("Fri, 31 Dec 9999 23:59:59 GMT".to_owned(), Some(hour..=hour)),
        ("Sun, 06 Nov 1994 08:49:37 GMT".to_owned(), Some(Duration::ZERO..=Duration::ZERO)),
        ("whenever".to_owned(), None),
    ];
    for (value, expected) in cases {
        provider.script([Reply::status(429).header("retry-after", &value)]);
        let retry_after = failed(channel.send(&Note::to("user-1").attempt(1)).await).retry_after;
        match (&expected, retry_after) {
            (Some(range), Some(wait)) => assert!(range.contains(&wait), "{value}: {wait:?}"),
            (expected, got) => assert!(expected.is_none() && got.is_none(), "{value}: {got:?}"),
        }
    }
}

fn httpdate(at: SystemTime) -> String {
    chrono::DateTime::<chrono::Utc>::from(at).format("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

#[tokio::test]
async fn the_excerpt_of_an_answer_can_be_stored_and_shown() {
    let provider = Provider::start();
    let channel = channel(&config(&provider.url("/")));
    provider.script([Reply::status(400).body(b"bad\0 \x1b[2J\xff \xec\x95\x88".to_vec())]);
    let excerpt = failed(channel.send(&Note::to("user-1").attempt(1)).await).excerpt.unwrap();
    assert_eq!(excerpt, "bad\u{fffd} \u{fffd}[2J\u{fffd} 안");
    provider.script([Reply::status(400).body("x".repeat(50_000))]);
    let excerpt = failed(channel.send(&Note::to("user-1").attempt(1)).await).excerpt.unwrap();
    assert_eq!(excerpt.len(), 1024);
    assert_sent(&channel.send(&Note::to("user-1").attempt(1)).await);
    assert_eq!(provider.connections(), 1, "answers within the limit leave the connection usable");
}

#[tokio::test]
async fn a_slow_answer_within_the_limits_is_a_success() {
    let provider = Provider::start();
    let delay = Duration::from_millis(300);
    provider.answer(Reply::ok().after(delay));
    let channel = channel(&config(&provider.url("/")));
    let note = Note::to("user-1");
    let outgoing = note.attempt(1);
    let (outcome, ()) = tokio::join!(channel.send(&outgoing), provider.wait_for(1, Duration::from_secs(5)));
    let Outcome::Sent { duration, .. } = outcome else { panic!("{outcome:?}") };
    assert!(duration >= delay, "the duration is the provider's time: {duration:?}");
    let call = &provider.ledger()[0];
    assert_eq!(call.recipient(), "user-1");
    assert!(call.at.elapsed() >= delay, "it was written down before it was answered");
}
