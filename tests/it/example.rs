//! The example file: complete, loadable, and telling the truth about defaults.

use std::collections::BTreeSet;

use outboxd::channel::{Channel, Outcome};
use outboxd::config::key::{Fallback, Key, Kind};
use outboxd::config::{Env, KEYS, Loaded, Origin, Sources, load};

use crate::channel::Note;
use crate::support::provider::Provider;

const EXAMPLE: &str = include_str!("../../outboxd.example.toml");

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
    let secret = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=";
    let env: Env = [
        ("DATABASE_URL", "postgres://app@127.0.0.1/app"),
        ("HTTP_TOKEN", "a-token-of-http_token"),
        ("SHOP_TOKEN", "a-token-of-the-shop"),
        ("PUSH_TOKEN", "token"),
        ("SMS_BASIC_AUTH", "dXNlcjpwYXNz"),
        ("ALIMTALK_SENDER", "sender"),
        ("ALIMTALK_SECRET", "secret"),
        ("WEBHOOK_SECRET", secret),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
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
