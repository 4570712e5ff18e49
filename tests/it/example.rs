//! The example file: complete, loadable, and telling the truth about defaults.

use std::collections::BTreeSet;

use outboxd::channel::{Channel, Outcome};
use outboxd::config::key::{Fallback, Key, Kind};
use outboxd::config::{Env, KEYS, Loaded, Origin, Sources, load};

use crate::channel::Note;
use crate::support::instance::Setup;
use crate::support::provider::{Provider, Reply};
use crate::support::world::{Carrier, World};
use crate::support::{command, sql};

const EXAMPLE: &str = include_str!("../../outboxd.example.toml");

/// What it takes from the environment, beside the database.
const SECRETS: &[(&str, &str)] = &[
    ("HTTP_TOKEN", "a-token-of-http_token"),
    ("SHOP_TOKEN", "a-token-of-the-shop"),
    ("PUSH_TOKEN", "token"),
    ("SMS_BASIC_AUTH", "dXNlcjpwYXNz"),
    ("ALIMTALK_SENDER", "sender"),
    ("ALIMTALK_SECRET", "secret"),
    ("WEBHOOK_SECRET", "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="),
];

/// Whether a commented-out line shows a form, because there is no default to show.
fn is_form(line: &str) -> bool {
    let is_absent = |key: &&Key| matches!(key.fallback, Fallback::Absent(_));
    KEYS.iter().filter(is_absent).any(|key| line.starts_with(&format!("{} =", last_name(key))))
}

/// The last part of its path that is no name of the user's.
fn last_name(key: &Key) -> &'static str {
    key.segments().filter(|part| *part != "*").last().unwrap()
}

fn load_example(text: &str) -> Loaded {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("outboxd.toml");
    std::fs::write(&file, text).unwrap();
    let database = ("DATABASE_URL", "postgres://app@127.0.0.1/app");
    let env = SECRETS.iter().chain([&database]).map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let env: Env = env.collect();
    load(&Sources { file: Some(file), env, overrides: Vec::new() }).unwrap_or_else(|errors| panic!("{errors}"))
}

/// A commented-out key: `#name = …`, with no space after the sign.
fn uncommented(line: &str) -> Option<&str> {
    let rest = line.strip_prefix('#')?;
    let name = rest.split(" = ").next().filter(|name| name.len() < rest.len())?;
    name.chars().all(|c| c.is_ascii_lowercase() || c == '_').then_some(rest)
}

fn with_defaults_uncommented() -> String {
    let with_default = |line: &'static str| uncommented(line).filter(|rest| !is_form(rest)).unwrap_or(line);
    EXAMPLE.lines().map(with_default).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_example_loads_as_it_is() {
    let loaded = load_example(EXAMPLE);
    assert_eq!(loaded.config.routes["quiz"].channels, ["push", "sms", "alimtalk"]);
    assert_eq!(loaded.config.channels.len(), 4);
}

#[test]
fn the_defaults_that_the_example_shows_are_the_defaults() {
    let (plain, full) = (load_example(EXAMPLE), load_example(&with_defaults_uncommented()));
    let changed = full.shown.iter().zip(&plain.shown).filter(|(full, plain)| full.origin != plain.origin);
    let shown: BTreeSet<&str> = changed
        .map(|(full, plain)| {
            if plain.origin == Origin::Default {
                assert_eq!(full.value, plain.value, "{}", full.key);
            }
            full.key.as_str()
        })
        .collect();
    let missing: Vec<&str> = KEYS
        .iter()
        .filter(|key| matches!(key.fallback, Fallback::Value(_)))
        .map(|key| key.path)
        .filter(|path| {
            let (push, quiz) = (path.replace("channels.*", "channels.push"), path.replace("routes.*", "routes.quiz"));
            !shown.contains(push.as_str()) && !shown.contains(quiz.as_str())
        })
        .collect();
    assert!(missing.is_empty(), "defaults that the example does not show: {missing:?}");
}

#[test]
fn every_key_appears_in_the_example() {
    let active = with_defaults_uncommented();
    for key in KEYS {
        let named = format!("{} =", last_name(key));
        let is_shown =
            |line: &str| line.strip_prefix('#').filter(|rest| is_form(rest)).unwrap_or(line).starts_with(&named);
        assert!(active.lines().any(is_shown), "{} does not appear in outboxd.example.toml", key.path);
    }
}

#[test]
fn every_secret_key_is_named_as_one_in_the_example() {
    let line = EXAMPLE.lines().find(|line| line.starts_with("# Secrets (")).unwrap();
    for key in KEYS.iter().filter(|key| matches!(key.kind, Kind::Secret | Kind::SecretUrl | Kind::Secrets)) {
        assert!(line.contains(last_name(key)), "{}", key.path);
    }
}

#[tokio::test]
async fn a_failover_of_the_example_never_takes_the_recipient_for_a_phone_number() {
    const PAYLOAD: &str = r#"{"phone": "+15550123", "title": "t", "text": "x", "template": "T1", "parameters": {}}"#;
    let loaded = load_example(EXAMPLE);
    let routes = loaded.config.routes.values().filter(|route| route.channels.len() > 1);
    for name in routes.flat_map(|route| &route.channels[1..]) {
        let provider = Provider::start();
        let mut config = loaded.config.channels[name].clone();
        config.url = provider.url("/");
        let channel = Channel::new(name, &config).unwrap();
        channel.send(&Note::to("device-token").payload(PAYLOAD).attempt(1)).await;
        let body = String::from_utf8(provider.ledger()[0].body.clone()).unwrap();
        assert!(body.contains("15550123") && !body.contains("device-token"), "{name}: {body}");
        let without_phone = Note::to("device-token").payload(r#"{"text": "x"}"#);
        let outcome = channel.send(&without_phone.attempt(1)).await;
        assert!(matches!(outcome, Outcome::Failed(_)) && provider.count() == 1, "{name}: {outcome:?}");
    }
}

#[tokio::test]
async fn the_example_as_it_stands_passes_the_check_and_runs() {
    let world = World::new(Carrier::Memory).await;
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("outboxd.toml"), EXAMPLE).unwrap();
    let url = world.database.url();
    let env: Vec<(&str, &str)> = SECRETS.iter().copied().chain([("DATABASE_URL", url.as_str())]).collect();
    let checked = command::run_in(dir.path(), &["check"], &env).await;
    assert_eq!(checked.code, 0, "{checked:?}");
    // Its own addresses are nobody's: here each channel is a provider that says no, the last one yes.
    let providers = ["push", "sms", "alimtalk"].map(|name| (name, Provider::start()));
    let mut setup = Setup::new(&url)
        .set("worker.lease", "60s")
        .toml(EXAMPLE)
        .env("OUTBOXD_ROUTES_QUIZ_ATTEMPTS_BEFORE_FAILOVER", "1");
    for (name, value) in SECRETS {
        setup = setup.env(name, value);
    }
    for (name, provider) in &providers {
        provider.answer(Reply::status(503));
        setup = setup.env(&format!("OUTBOXD_CHANNELS_{}_URL", name.to_uppercase()), &provider.url("/"));
        setup = setup.env("OUTBOXD_ROUTES_QUIZ_BACKOFF_BASE", "100ms");
    }
    let [push, sms, alimtalk] = &providers.map(|(_, provider)| provider);
    alimtalk.answer(Reply::ok().body(r#"{"header": {"isSuccessful": true}, "message": {"requestId": "1"}}"#));
    let instance = setup.start().await;
    for payload in [
        r#"{"title": "t", "text": "x", "phone": "+15550123", "template": "T1", "parameters": {}}"#,
        r#"{"title": "t", "text": "x"}"#,
    ] {
        sql::run(&world.app, &format!("SELECT outboxd.notify('quiz', 'device-token', '{payload}')")).await;
    }
    // A topic that goes to a webhook, and a recipient that is none.
    sql::run(&world.app, "SELECT outboxd.notify('order.paid', 'device-token', '{}')").await;
    sql::until(&world.app, "SELECT count(*) = 0 FROM outboxd.outbox").await;
    let ended =
        "SELECT string_agg(topic || ' ' || status || ' ' || channel, ', ' ORDER BY id) FROM outboxd.notifications";
    let ended: String = sql::value(&world.app, ended).await;
    assert_eq!(ended, "quiz SENT alimtalk, quiz FAILED alimtalk, order.paid FAILED webhook");
    let bodies = |provider: &Provider| -> Vec<String> {
        provider.ledger().iter().map(|call| String::from_utf8(call.body.clone()).unwrap()).collect()
    };
    assert!(bodies(push).len() == 2 && bodies(push).iter().all(|body| body.contains("device-token")));
    assert_eq!(bodies(sms), ["To=%2B15550123&From=15550100&Body=x"]);
    assert!(bodies(alimtalk).len() == 1 && bodies(alimtalk)[0].contains("+15550123"), "{:?}", bodies(alimtalk));
    assert_eq!(instance.drain().await, 0);
}
