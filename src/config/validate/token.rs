//! Tokens of the HTTP endpoints: long enough, told apart, and there at all where others can reach us.
//!
//! **Guarantee.** Off loopback nothing is served without a token, and no error repeats one. What `openssl rand` prints
//! is never suspected, from 64 bits on. **Limit.** A token that looks guessable is warned of, not refused; one that is
//! published somewhere looks as random as before.

use secrecy::ExposeSecret;

use crate::config::key::KeyPath;
use crate::config::legal::{self, MAKE_TOKEN};
use crate::config::settings::Settings;
use crate::config::{Config, HTTP_TOKEN, LOCAL};

/// What somebody with many machines does not try out over HTTP in years.
const BITS_MIN: f64 = 64.0;
/// Of a letter of a word, in a language that somebody speaks.
const BITS_OF_LETTER: f64 = 2.3;
/// Of all that stood before already.
const BITS_OF_REPEATED: f64 = 4.0;
/// Of what the characters before it foretell.
const BITS_OF_FORETOLD: f64 = 0.5;
/// Letters in a row that look like a word, and characters in a row that look like a repetition.
const RUN_MIN: usize = 4;

/// Every token and where it stands.
fn all(config: &Config) -> Vec<(KeyPath, &str)> {
    let http_token = config.http_token.iter().map(|token| (KeyPath::dotted(HTTP_TOKEN), token.expose_secret()));
    let path = |name| KeyPath::dotted("tokens.*.token").named(name);
    http_token.chain(config.tokens.iter().map(|(name, own)| (path(name), own.token.expose_secret()))).collect()
}

/// Notes what is wrong with tokens, and where one is missing.
pub(super) fn validate(settings: &mut Settings, config: &Config) {
    for (name, token) in &config.tokens {
        let at = KeyPath(vec!["tokens".into(), name.clone()]);
        if let Err(what) = legal::name(name) {
            settings.error(&at, what);
        } else if [HTTP_TOKEN, LOCAL].contains(&name.as_str()) {
            settings.error(&at, "has a name that outboxd uses itself; choose another");
        }
        let topics = at.child("topics");
        if token.topics.as_ref().is_some_and(Vec::is_empty) && !settings.is_wrong(&topics) {
            settings.error(&topics, "is empty; leave it out for all topics");
        }
    }
    let mut all = all(config);
    all.retain(|(path, _)| settings.is_given(path) && !settings.is_wrong(path));
    for (n, (path, token)) in all.iter().enumerate() {
        if let Some((first, _)) = all[..n].iter().find(|(_, other)| other == token) {
            settings.error(path, format!("is the same as {first}; each needs its own, or nobody knows who acted"));
        }
    }
    is_there(settings, config);
}

/// Tokens that a person seems to have thought of.
pub(super) fn warnings(config: &Config) -> Vec<String> {
    let guessable = all(config).into_iter().filter(|(_, token)| is_guessable(token));
    guessable.map(|(path, _)| format!("{path} looks guessable; make one with: {MAKE_TOKEN}")).collect()
}

fn is_there(settings: &mut Settings, config: &Config) {
    let [path, token] = ["http_addr", HTTP_TOKEN].map(KeyPath::dotted);
    let has_token = config.http_token.is_some() || !config.tokens.is_empty() || settings.is_wrong(&token);
    if !config.http_addr.ip().is_loopback() && !has_token && !settings.is_wrong(&path) {
        let what = "which others can reach; set http_token (OUTBOXD_HTTP_TOKEN), or listen on 127.0.0.1";
        settings.error(&path, format!("is {}, {what}", config.http_addr));
    }
}

/// What a person thinks of has far fewer possibilities than its length says: words, dates, steps along the alphabet,
/// repetition.
fn is_guessable(token: &str) -> bool {
    bits(token) < BITS_MIN
}

/// About how many, as somebody would guess who knows how people choose.
fn bits(token: &str) -> f64 {
    let chars: Vec<char> = token.chars().collect();
    let lower: Vec<char> = token.chars().map(|c| c.to_ascii_lowercase()).collect();
    let possible = possible(&chars);
    let (mut at, mut bits) = (0, 0.0);
    while at < chars.len() {
        let (taken, more) = match (repeated(&lower, at), word(&chars, at)) {
            (length @ RUN_MIN.., _) => (length, BITS_OF_REPEATED),
            // Hexadecimal digits are no letters.
            (_, length @ RUN_MIN..) if possible > 16.0 => (length, BITS_OF_LETTER * length as f64),
            _ if is_foretold(&lower, at) => (1, BITS_OF_FORETOLD),
            _ => (1, possible.log2()),
        };
        (at, bits) = (at + taken, bits + more);
    }
    bits
}

/// How many characters each one was chosen from.
fn possible(chars: &[char]) -> f64 {
    let all = |class: fn(char) -> bool| chars.iter().all(|c| class(*c) || "-_.:".contains(*c));
    let has = |class: fn(&char) -> bool, size: f64| if chars.iter().any(class) { size } else { 0.0 };
    match () {
        () if all(|c| c.is_ascii_digit()) => 10.0,
        () if all(|c| c.is_ascii_hexdigit()) => 16.0,
        () => {
            let letters = has(char::is_ascii_lowercase, 26.0) + has(char::is_ascii_uppercase, 26.0);
            letters + has(char::is_ascii_digit, 10.0) + has(char::is_ascii_punctuation, 2.0)
        }
    }
}

/// How many characters from here on stood before already.
fn repeated(lower: &[char], at: usize) -> usize {
    let same = |from: usize| (0..at - from).take_while(|n| lower.get(at + n) == lower.get(from + n)).count();
    (0..at).map(same).max().unwrap_or(0)
}

/// How many letters from here on somebody could say: of one case but for the first, with a vowel.
fn word(chars: &[char], at: usize) -> usize {
    if !chars[at].is_ascii_alphabetic()
        || at > 0 && chars[at - 1].is_ascii_lowercase() && chars[at].is_ascii_lowercase()
    {
        return 0;
    }
    let is_upper = chars.get(at + 1).is_some_and(char::is_ascii_uppercase);
    let is_of_it = |c: &&char| if is_upper { c.is_ascii_uppercase() } else { c.is_ascii_lowercase() };
    let length = 1 + chars[at + 1..].iter().take_while(is_of_it).count();
    let has_vowel = chars[at..at + length].iter().any(|c| "aeiouyAEIOUY".contains(*c));
    if has_vowel { length } else { 0 }
}

/// The next step of a row (`123`, `aaa`, `cba`), or what stands between words.
fn is_foretold(lower: &[char], at: usize) -> bool {
    let step = |at: usize| i64::from(u32::from(lower[at])) - i64::from(u32::from(lower[at - 1]));
    let is_step = at >= 2 && step(at) == step(at - 1) && step(at).abs() <= 1;
    is_step || "-_.: ".contains(lower[at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_think_of_is_guessable() {
        let tokens = "\
            hunter2-hunter2-hunter2 aaaaaaaaaaaaaaaa 1234567890123456 0123456789abcdef password-password \
            Password123456789! my-secret-token-2026 shop-token-0123456789 a-token-of-16-characters \
            changeme-changeme-changeme correct-horse-battery-staple qwertyuiopasdfgh outboxd-production-admin \
            SuperSecretToken2024 abcabcabcabcabcabcabc 4915212345678901";
        for token in tokens.split(' ') {
            assert!(is_guessable(token), "{token}: {} bits", bits(token));
        }
    }

    #[test]
    fn what_was_drawn_at_random_is_not() {
        let tokens = "\
            k3Rz8vQm1LxT5yWd p9Bn4cJf7HsG2aXe 5f1d7a9e3b8c2d604e7f 1f0c7a52-6c1e-4d0b-9a37-5be2b0b0c9d1 \
            q7GmVxNc0aTz4RkWb2YhLs9D c29tZSByYW5kb20gYnl0ZXM_x-4Kq qzjvwkxhpbtrmndgfslcyeqzkvhwxjtp";
        for token in tokens.split(' ') {
            assert!(!is_guessable(token), "{token}: {} bits", bits(token));
        }
        for _ in 0..200 {
            let hex: String = rand::random::<[u8; 32]>().iter().map(|byte| format!("{byte:02x}")).collect();
            assert!(!is_guessable(&hex), "{hex}: {} bits", bits(&hex));
        }
    }
}
