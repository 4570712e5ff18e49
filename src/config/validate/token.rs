//! Tokens of the HTTP endpoints: long enough, told apart, and there at all where others can reach us.
//!
//! **Guarantee.** Off loopback nothing is served without a token, and no error repeats one. **Limit.** A token that looks
//! guessable is warned of, not refused.

use std::collections::BTreeMap;

use secrecy::{ExposeSecret, SecretString};

use super::channel::legal_name;
use super::guessable::is_guessable;
use crate::config::key::KeyPath;
use crate::config::settings::Settings;
use crate::config::{Config, HTTP_TOKEN, LOCAL, TOPIC_BYTES_MAX, TokenConfig};

/// Characters of a token at least: what is shorter is guessed.
const CHARS_MIN: usize = 16;
/// What makes a good one.
const MAKE: &str = "openssl rand -hex 32";

/// Notes what is wrong with tokens, and where one is missing.
pub(super) fn validate(settings: &mut Settings, config: &Config) {
    let mut first_of: BTreeMap<&str, KeyPath> = BTreeMap::new();
    if let Some(token) = &config.http_token {
        let path = KeyPath::dotted(HTTP_TOKEN);
        secret(settings, &path, token);
        first_of.insert(token.expose_secret(), path);
    }
    for (name, token) in &config.tokens {
        let at = KeyPath(vec!["tokens".into(), name.clone()]);
        if let Err(what) = legal_name(name) {
            settings.error(&at, what);
        } else if [HTTP_TOKEN, LOCAL].contains(&name.as_str()) {
            settings.error(&at, "has a name that outboxd uses itself; choose another");
        }
        topics(settings, &at.child("topics"), token);
        let path = at.child("token");
        if !settings.is_given(&path) || settings.is_wrong(&path) {
            continue;
        }
        secret(settings, &path, &token.token);
        if let Some(first) = first_of.get(token.token.expose_secret()) {
            settings.error(&path, format!("is the same as {first}; each needs its own, or nobody knows who acted"));
        } else {
            first_of.insert(token.token.expose_secret(), path);
        }
    }
    is_there(settings, config);
}

/// Tokens that a person seems to have thought of.
pub(super) fn warnings(config: &Config) -> Vec<String> {
    let http_token = config.http_token.iter().map(|token| (HTTP_TOKEN.to_owned(), token));
    let named = config.tokens.iter().map(|(name, token)| (format!("tokens.{name}.token"), &token.token));
    let guessable = http_token.chain(named).filter(|(_, token)| is_guessable(token.expose_secret()));
    guessable.map(|(key, _)| format!("{key} looks guessable; make one with: {MAKE}")).collect()
}

/// Repeats nothing of it.
fn secret(settings: &mut Settings, path: &KeyPath, token: &SecretString) {
    let token = token.expose_secret();
    if token.chars().count() < CHARS_MIN {
        let what = format!("has fewer than {CHARS_MIN} characters; make one with: {MAKE}");
        settings.error(path, what);
    } else if !token.chars().all(|c| c.is_ascii_graphic()) {
        settings.error(path, format!("has a character that a header cannot hold; make one with: {MAKE}"));
    }
}

fn topics(settings: &mut Settings, path: &KeyPath, token: &TokenConfig) {
    let Some(topics) = &token.topics else { return };
    if topics.is_empty() && !settings.is_wrong(path) {
        settings.error(path, "is empty; leave it out for all topics");
    }
    for topic in topics {
        if topic.is_empty() || topic.len() > TOPIC_BYTES_MAX {
            settings.error(path, format!("has {topic:?}, which is no topic: they have 1 to {TOPIC_BYTES_MAX} bytes"));
        } else if topic.trim_end_matches('*').contains('*') || topic.ends_with("**") {
            settings.error(path, format!("has {topic:?}; a * stands at the end alone, as in \"order.*\""));
        }
    }
}

fn is_there(settings: &mut Settings, config: &Config) {
    let path = KeyPath::dotted("http_addr");
    let has_token = config.http_token.is_some() || !config.tokens.is_empty();
    if settings.is_wrong(&path) || config.http_addr.ip().is_loopback() || has_token {
        return;
    }
    if !settings.is_wrong(&KeyPath::dotted(HTTP_TOKEN)) {
        let what = format!(
            "is {}, which others can reach; set http_token (OUTBOXD_HTTP_TOKEN), or listen on 127.0.0.1",
            config.http_addr
        );
        settings.error(&path, what);
    }
}
