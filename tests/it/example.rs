//! The example file: complete, loadable, and telling the truth about defaults.

use std::collections::BTreeSet;

use outboxd::channel::{Channel, Outcome};
use outboxd::config::key::{Fallback, Key, Kind};
use outboxd::config::{Env, KEYS, Loaded, Origin, Sources, load};

use crate::channel::Note;
use crate::support::golden::assert_is_current;
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

/// The table that the key stands in, with its dot.
fn table(key: &Key) -> &'static str {
    let path = key.path.trim_end_matches(".*");
    &path[..path.len() - last_name(key).len()]
}

/// What the example says above a key.
fn comment(key: &Key) -> Vec<String> {
    let doc = key.doc.iter().map(|line| line.trim()).filter(|line| !line.is_empty());
    let default = match key.fallback {
        Fallback::Derived(text) | Fallback::Absent(text) => format!("Default: {text}."),
        Fallback::Value(_) | Fallback::Required(_) => String::new(),
    };
    let secret = if key.is_secret() { "A secret." } else { "" };
    let last = format!("{default} {secret}");
    doc.chain([last.trim()]).filter(|line| !line.is_empty()).map(|line| format!("# {line}")).collect()
}

/// The default as the example shows it, or a form where there is none.
fn line(key: &Key) -> String {
    let value = match (key.fallback, key.kind) {
        (Fallback::Value(text), Kind::Integer(..) | Kind::Ratio | Kind::Flag) => text.to_owned(),
        (Fallback::Value(""), Kind::Texts | Kind::Networks | Kind::Secrets) => "[]".to_owned(),
        (Fallback::Value(text), _) => format!("{text:?}"),
        (_, Kind::Integer(min, _)) => min.to_string(),
        (_, Kind::Flag) => "true".to_owned(),
        (_, Kind::Texts | Kind::Networks | Kind::Secrets) => "[]".to_owned(),
        _ => "\"…\"".to_owned(),
    };
    format!("#{} = {value}", last_name(key))
}

/// The key that a line gives or shows, in a table such as `channels.push`.
fn key_of(line: &str, section: &str) -> Option<&'static Key> {
    let (name, _) = line.strip_prefix('#').unwrap_or(line).split_once(" = ")?;
    let mut parts: Vec<&str> = section.split('.').filter(|part| !part.is_empty()).collect();
    if parts.first().is_some_and(|first| ["tokens", "channels", "routes"].contains(first)) {
        parts[1] = "*";
    }
    let table_of_line = parts.iter().map(|part| format!("{part}.")).collect::<String>();
    KEYS.iter().find(|key| last_name(key) == name && table(key) == table_of_line)
}

/// The example with each comment, each default and each key that it lacks as the table of keys has them. A key's comment
/// stands where it is first; the rest is written by hand.
fn from_the_table(text: &str) -> String {
    let section_of = |line: &str| line.strip_prefix('[')?.strip_suffix(']').map(str::to_owned);
    let (mut section, mut written) = (String::new(), BTreeSet::new());
    for text in text.lines() {
        section = section_of(text).unwrap_or(section);
        written.extend(key_of(text, &section).map(|key| key.path));
    }
    let (mut lines, mut seen, mut missing, mut is_within) = (Vec::new(), BTreeSet::new(), Vec::new(), false);
    section.clear();
    for text in text.lines() {
        section = section_of(text).unwrap_or(section);
        let key = key_of(text, &section).filter(|key| !is_within && seen.insert(key.path));
        if let Some(key) = key {
            while lines.last().is_some_and(|line: &String| line.starts_with("# ")) {
                lines.pop();
            }
            lines.extend(comment(key));
            let following = KEYS.iter().skip_while(|other| other.path != key.path).skip(1);
            let lacking = following.take_while(|other| table(other) == table(key) && !written.contains(other.path));
            missing.extend(lacking);
        }
        let shows_default = key.filter(|key| text.starts_with('#') && matches!(key.fallback, Fallback::Value(_)));
        lines.push(shows_default.map_or(text.to_owned(), line));
        is_within ^= text.matches("'''").count() == 1;
        for key in missing.drain(..).filter(|_| !is_within) {
            lines.extend(comment(key));
            lines.push(line(key));
        }
    }
    lines.join("\n") + "\n"
}

#[test]
fn the_example_says_of_each_key_what_its_field_says() {
    let example = from_the_table(EXAMPLE);
    let lines: BTreeSet<String> = example.lines().map(str::to_owned).collect();
    let missing: Vec<&str> =
        KEYS.iter().filter(|key| !comment(key).iter().all(|line| lines.contains(line))).map(|key| key.path).collect();
    assert_eq!(missing, [""; 0], "give outboxd.example.toml a table for it");
    assert_is_current("outboxd.example.toml", &example);
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
    assert!(shown.len() > 50, "{shown:?}");
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
