//! Forward proxies: the channel's own and the environment's. A provider serves as one, for it writes down what
//! arrives: a request to a proxy names the whole URL.

use std::sync::Arc;

use outboxd::channel::{Cause, Channel};
use outboxd::retry::Failure;

use super::guard::{Answers, assert_refused};
use super::{Note, assert_sent, channel, config, failed};
use crate::support::instance::Setup;
use crate::support::postgres;
use crate::support::provider::{Provider, Reply};
use crate::support::sql::Sql;

#[tokio::test]
async fn requests_go_to_the_channels_proxy_which_resolves_their_host() {
    let proxy = Provider::start();
    let mut config = config("http://push.example/v1/send");
    config.proxy = Some(proxy.url("").replace("http://", "http://user:pass%20word@").into());
    let nobody = Answers::new(&[]);
    let channel = Channel::with_resolver("push", &config, Arc::clone(&nobody) as _).unwrap();
    for attempt in 1..=2 {
        assert_sent(&channel.send(&Note::to("user-1").attempt(attempt)).await);
    }
    assert_eq!((proxy.count(), proxy.connections()), (2, 1));
    let call = &proxy.ledger()[0];
    assert_eq!((call.path.as_str(), call.header("host")), ("http://push.example/v1/send", Some("push.example")));
    assert_eq!(call.header("proxy-authorization"), Some("Basic dXNlcjpwYXNzIHdvcmQ="));
}

#[tokio::test]
async fn a_proxy_may_be_inside_and_literals_in_data_still_meet_the_guard() {
    let proxy = Provider::start();
    let mut config = config("{{ recipient }}");
    config.proxy = Some(format!("http://egress.example:{}", proxy.addr().port()).into());
    let names = Answers::new(&[&["127.0.0.1"]]);
    let channel = Channel::with_resolver("webhook", &config, Arc::clone(&names) as _).unwrap();
    assert_sent(&channel.send(&Note::to("http://customer.example/hook").attempt(1)).await);
    assert_eq!((names.left(), proxy.ledger()[0].path.as_str()), (0, "http://customer.example/hook"));
    for inside in ["http://127.0.0.1:1/", "https://169.254.169.254/", "http://[::ffff:10.0.0.1]/", "http://0x7f.1/"] {
        assert_refused(&failed(channel.send(&Note::to(inside).attempt(1)).await), inside);
    }
    assert_eq!(proxy.count(), 1);
}

#[tokio::test]
async fn a_tunnel_that_the_proxy_refuses_is_a_request_that_was_not_sent() {
    let proxy = Provider::start();
    proxy.answer(Reply::status(403));
    let mut config = config("https://push.example/v1/send");
    config.proxy = Some(proxy.url("").into());
    let failed = failed(channel(&config).send(&Note::to("user-1").attempt(1)).await);
    assert_eq!((failed.failure, failed.cause), (Failure::Transient, Cause::Connect), "{}", failed.error);
    let call = &proxy.ledger()[0];
    assert_eq!((call.method.as_str(), call.path.as_str(), call.body.len()), ("CONNECT", "push.example:443", 0));
    assert_eq!(call.header("webhook-id"), None, "the proxy learns the host and nothing more");
}

#[tokio::test]
async fn the_environments_proxy_serves_written_hosts_and_never_replaces_the_guard() {
    let (database, proxy, direct) = (postgres::database().await, Provider::start(), Provider::start());
    let channel = |name: &str, url: &str, more: &str| {
        format!("[channels.{name}]\nurl = \"{url}\"\n{more}\n[routes.{name}]\nchannels = [\"{name}\"]\n")
    };
    let _instance = Setup::new(&database.url())
        .toml(&channel("far", "http://far.invalid/far", ""))
        .toml(&channel("near", &direct.url("/near").replace("127.0.0.1", "localhost"), ""))
        .toml(&channel("denying", &direct.url("/denying"), "deny = [\"10.0.0.0/8\"]"))
        .toml(&channel("data", "{{ recipient }}", "allow_private = true"))
        .toml("[routes.default]\nchannels = [\"far\"]\n")
        .env("HTTP_PROXY", &proxy.url(""))
        .env("NO_PROXY", "localhost")
        .start()
        .await;
    let app = database.connect().await;
    let recipient = direct.url("/data");
    let notify = "SELECT outboxd.notify(topic, $1, '{}') FROM unnest(ARRAY['far', 'near', 'denying', 'data']) topic";
    app.execute(notify, &[&recipient]).await.unwrap();
    app.until("SELECT bool_and(status = 'SENT') FROM outboxd.notifications").await;
    let paths = |provider: &Provider| {
        let mut paths: Vec<String> = provider.ledger().into_iter().map(|call| call.path).collect();
        paths.sort();
        paths
    };
    assert_eq!(paths(&proxy), ["http://far.invalid/far"]);
    assert_eq!(paths(&direct), ["/data", "/denying", "/near"]);
}
