//! URLs that come from data reach nothing inside.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use outboxd::channel::{Cause, Channel, Failed};
use outboxd::retry::Failure;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::{Note, assert_sent, channel, config, failed};
use crate::support::provider::{Provider, Reply};

/// A DNS that gives each lookup the next answer.
pub struct Answers(Mutex<VecDeque<Vec<IpAddr>>>);

impl Answers {
    pub fn new(answers: &[&[&str]]) -> Arc<Answers> {
        let parse = |answer: &&[&str]| answer.iter().map(|ip| ip.parse().unwrap()).collect();
        Arc::new(Answers(Mutex::new(answers.iter().map(parse).collect())))
    }

    pub fn left(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

impl Resolve for Answers {
    fn resolve(&self, _: Name) -> Resolving {
        let answer = self.0.lock().unwrap().pop_front().expect("no more lookups than foreseen");
        let addresses: Addrs = Box::new(answer.into_iter().map(|ip| SocketAddr::new(ip, 0)));
        Box::pin(async move { Ok(addresses) })
    }
}

pub fn assert_refused(failed: &Failed, what: &str) {
    assert_eq!((failed.failure, failed.cause), (Failure::Permanent, Cause::Guard), "{what}: {}", failed.error);
}

/// Two providers on one port: 127.0.0.2, which the channel allows, and 127.0.0.1, which it must not reach.
fn outside_and_inside() -> (Provider, Provider) {
    loop {
        let outside = Provider::start_at("127.0.0.2:0".parse().unwrap()).unwrap();
        if let Ok(inside) = Provider::start_at(SocketAddr::new([127, 0, 0, 1].into(), outside.addr().port())) {
            return (outside, inside);
        }
    }
}

fn webhooks(resolver: Arc<Answers>) -> Channel {
    let mut config = config("{{ recipient }}");
    config.allow = vec!["127.0.0.2/32".parse().unwrap()];
    Channel::with_resolver("webhook", &config, resolver).unwrap()
}

#[tokio::test]
async fn literals_in_odd_forms_do_not_reach_a_private_listener() {
    let inside = Provider::start();
    let port = inside.addr().port();
    let channel = channel(&config("{{ recipient }}"));
    for host in [
        "127.0.0.1",
        "127.1",
        "127.0.1",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "0x7f.0.0.0x1",
        "017700000001",
        "0177.0.0.1",
        "127.0.0.1.",
        "127.0.0.2",
        "0",
        "0.0.0.0",
        "%31%32%37.0.0.1",
        "127%2e0%2e0%2e1",
        "①②⑦.⓪.⓪.①",
        "127。0。0。1",
        "[::1]",
        "[::]",
        "[0:0:0:0:0:0:0:1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[64:ff9b:1::7f00:1]",
        "[2002:7f00:1::]",
        "[fe80::1]",
        "[fd00::1]",
        "10.0.0.1",
        "169.254.169.254",
        "2852039166",
        "192.168.1.1",
        "172.16.0.1",
        "100.64.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "localhost",
        "LocalHost",
    ] {
        let failed = failed(channel.send(&Note::to(&format!("http://{host}:{port}/")).attempt(1)).await);
        assert_refused(&failed, host);
        assert!(failed.error.contains("the channel's allow = "), "{host}: {}", failed.error);
        assert!(!failed.error.contains("127"), "the reason does not repeat the recipient: {}", failed.error);
    }
    assert_eq!((inside.count(), inside.connections()), (0, 0));
}

#[tokio::test]
async fn other_schemes_and_credentials_in_urls_are_refused() {
    let channel = channel(&config("{{ recipient }}"));
    for url in [
        "file:///etc/passwd",
        "gopher://a.example/",
        "ftp://a.example/",
        "http://user:pw@a.example/",
        "http://u@a.example/",
    ] {
        assert_refused(&failed(channel.send(&Note::to(url).attempt(1)).await), url);
    }
    for no_url in ["", "a.example", "/path", "http://", "http://[::1", "http://a b/"] {
        let failed = failed(channel.send(&Note::to(no_url).attempt(1)).await);
        assert_eq!((failed.failure, failed.cause), (Failure::Permanent, Cause::Template), "{no_url}");
        assert!(failed.error.starts_with("template url: not a url"), "{}", failed.error);
    }
}

#[tokio::test]
async fn a_name_that_resolves_inside_is_refused() {
    let inside = Provider::start();
    for answer in
        [&["127.0.0.1"][..], &["::ffff:127.0.0.1"], &["10.0.0.1", "::1"], &["169.254.169.254"], &["64:ff9b::7f00:1"]]
    {
        let channel = webhooks(Answers::new(&[answer]));
        let url = format!("http://a.example:{}/", inside.addr().port());
        assert_refused(&failed(channel.send(&Note::to(&url).attempt(1)).await), answer[0]);
    }
    assert_eq!(inside.connections(), 0);
}

#[tokio::test]
async fn the_address_that_was_checked_is_the_address_that_is_connected_to() {
    let (outside, inside) = outside_and_inside();
    outside.answer(Reply::ok().header("connection", "close").then_close());
    let answers = Answers::new(&[&["127.0.0.2"], &["127.0.0.1"], &["127.0.0.1", "127.0.0.2"]]);
    let channel = webhooks(Arc::clone(&answers));
    let note = Note::to(&format!("http://rebind.example:{}/", outside.addr().port()));
    assert_sent(&channel.send(&note.attempt(1)).await);
    assert_eq!(answers.left(), 2, "one lookup per connection");
    assert_refused(&failed(channel.send(&note.attempt(2)).await), "rebound");
    assert_sent(&channel.send(&note.attempt(3)).await);
    assert_eq!((outside.count(), inside.connections()), (2, 0));
}

#[tokio::test]
async fn a_redirect_to_a_private_address_is_not_followed() {
    let (outside, inside) = outside_and_inside();
    let channel = webhooks(Answers::new(&[&["127.0.0.2"]]));
    let note = Note::to(&format!("http://a.example:{}/", outside.addr().port()));
    for status in [301, 302, 303, 307, 308] {
        outside.script([Reply::redirect(status, &inside.url("/admin"))]);
        let failed = failed(channel.send(&note.attempt(1)).await);
        assert_eq!((failed.failure, failed.status), (Failure::Permanent, Some(status)));
    }
    assert_eq!((outside.count(), inside.connections()), (5, 0));
}

#[tokio::test]
async fn allow_private_and_the_lists_decide_in_this_order() {
    let inside = Provider::start();
    let note = Note::to(&inside.url("/"));
    let mut config = config("{{ recipient }}");
    config.allow_private = true;
    assert_sent(&channel(&config).send(&note.attempt(1)).await);
    config.deny = vec!["127.0.0.0/8".parse().unwrap()];
    assert_refused(&failed(channel(&config).send(&note.attempt(1)).await), "denied");
    config.allow = config.deny.clone();
    assert_refused(&failed(channel(&config).send(&note.attempt(1)).await), "deny beats allow");
    let mapped = Note::to(&format!("http://[::ffff:127.0.0.1]:{}/", inside.addr().port()));
    assert_refused(&failed(channel(&config).send(&mapped.attempt(1)).await), "denied, mapped");
    config.deny.clear();
    config.allow_private = false;
    assert_sent(&channel(&config).send(&note.attempt(1)).await);
    assert_eq!(inside.count(), 2);
}

#[tokio::test]
async fn the_operators_own_url_may_be_inside_unless_denied() {
    let inside = Provider::start();
    let mut config = config(&inside.url("/{{ topic }}"));
    assert_sent(&channel(&config).send(&Note::to("user-1").attempt(1)).await);
    config.deny = vec!["127.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()];
    assert_refused(&failed(channel(&config).send(&Note::to("user-1").attempt(1)).await), "rendered literal");
    config.url = format!("http://localhost:{}/", inside.addr().port());
    assert_refused(&failed(channel(&config).send(&Note::to("user-1").attempt(1)).await), "name");
    config.url = inside.url("/");
    assert!(Channel::new("push", &config).unwrap_err().to_string().contains("deny list"));
    assert_eq!(inside.count(), 1);
}
