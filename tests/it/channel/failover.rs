//! Routes: which channels a topic uses.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use outboxd::channel::Outcome;
use outboxd::channel::failover::Router;
use outboxd::config::{Backoff, RouteConfig, defaults};
use outboxd::retry::{Decision, Position, decide};

use super::{Note, config};
use crate::support::provider::{Provider, Reply};

fn route(channels: &[&str]) -> RouteConfig {
    let channels = channels.iter().map(|name| (*name).to_owned()).collect();
    let backoff = Backoff { base: Duration::from_secs(5), max: Duration::from_secs(60), jitter: 0.0 };
    RouteConfig { channels, max_attempts: 4, backoff, ..defaults().routes["default"].clone() }
}

#[test]
fn a_topic_without_a_route_takes_the_default_one() {
    let channels = BTreeMap::from(["push", "sms"].map(|name| (name.to_owned(), config("https://a.example/"))));
    let mut routes = BTreeMap::from([("quiz".to_owned(), route(&["push", "sms"]))]);
    let router = Router::new(&channels, &routes).unwrap();
    let quiz = router.route_for("quiz").unwrap();
    assert_eq!([0, 1, 7].map(|step| quiz.position(step)), [0, 1, 1]);
    let error = router.route_for("news").unwrap_err().to_string();
    assert_eq!(error, "no route for topic `news` and no default route");
    routes.insert("default".to_owned(), route(&["sms"]));
    let router = Router::new(&channels, &routes).unwrap();
    let (quiz, default) = (router.route_for("quiz").unwrap(), router.route_for("news").unwrap());
    assert!(Arc::ptr_eq(&quiz.channels[1], &default.channels[0]), "a channel and its limits exist once");
}

#[test]
fn a_route_must_name_channels_that_exist() {
    let channels = BTreeMap::from([("push".to_owned(), config("https://a.example/"))]);
    for (names, reason) in [(&["push", "sms"][..], "nothing defines it"), (&[], "names no channel")] {
        let routes = BTreeMap::from([("quiz".to_owned(), route(names))]);
        let error = Router::new(&channels, &routes).unwrap_err().to_string();
        assert!(error.contains(reason) && error.contains("quiz"), "{error}");
    }
}

#[tokio::test]
async fn push_fails_over_to_sms_and_then_to_alimtalk() {
    let names = ["push", "sms", "alimtalk"];
    let providers = names.map(|_| Provider::start());
    providers[0].answer(Reply::status(410));
    providers[1].answer(Reply::status(503));
    let channels =
        names.iter().zip(&providers).map(|(name, provider)| ((*name).to_owned(), config(&provider.url("/"))));
    let routes = BTreeMap::from([("quiz".to_owned(), route(&names))]);
    let router = Router::new(&channels.collect(), &routes).unwrap();
    let route = router.route_for("quiz").unwrap();
    let note = Note::to("user-1");
    let mut position = Position { channel: 0, attempts: 1 };
    let delivered_by = loop {
        let channel = &route.channels[position.channel].channel;
        match channel.send(&note.attempt(position.attempts)).await {
            Outcome::Short(shortage) => panic!("{shortage:?}"),
            Outcome::Sent { .. } => break channel.name(),
            Outcome::Failed(failed) => match decide(&route.policy, position, failed.failure, failed.retry_after, 0.5) {
                Decision::Retry(_) => position.attempts += 1,
                Decision::NextChannel => position = Position { channel: position.channel + 1, attempts: 1 },
                Decision::GiveUp => panic!("the last channel works"),
            },
        }
    };
    assert_eq!(&**delivered_by, "alimtalk");
    assert_eq!(providers.each_ref().map(Provider::count), [1, 3, 1]);
    let ids = providers.iter().flat_map(Provider::ledger).map(|call| call.webhook_id).collect::<Vec<_>>();
    assert!(ids.iter().all(|id| *id == note.webhook_id), "{ids:?}");
}
