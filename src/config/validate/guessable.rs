//! Whether a token looks as if somebody could guess it. What a person thinks of has far fewer possibilities than its
//! length says: words, dates, steps along the alphabet, repetition.
//!
//! **Guarantee.** What `openssl rand` prints is never suspected, from 64 bits on. **Limit.** An estimate: a token that
//! is published somewhere looks as random as before.

/// What somebody with many machines does not try out over HTTP in years.
const BITS_MIN: f64 = 64.0;
/// A letter of a word, in a language that somebody speaks.
const BITS_OF_LETTER: f64 = 2.4;
/// Of a word that everybody tries first, however long.
const BITS_OF_COMMON: f64 = 4.0;
/// What the characters before it foretell.
const BITS_OF_FORETOLD: f64 = 0.5;
/// Letters in a row that look like a word, and characters in a row that look like a repetition.
const RUN_MIN: usize = 4;

const COMMON: [&str; 34] = [
    "outboxd", "password", "passwort", "secret", "token", "admin", "root", "change", "letmein", "qwerty", "asdf",
    "zxcv", "test", "demo", "example", "default", "hunter", "dragon", "monkey", "master", "welcome", "login", "bearer",
    "access", "local", "prod", "staging", "service", "horse", "staple", "battery", "correct", "sample", "please",
];

/// Whether it does.
pub(super) fn is_guessable(token: &str) -> bool {
    bits(token) < BITS_MIN
}

/// About how many, as somebody would guess who knows how people choose.
fn bits(token: &str) -> f64 {
    let chars: Vec<char> = token.chars().collect();
    let lower: Vec<char> = token.chars().map(|c| c.to_ascii_lowercase()).collect();
    let of_one = pool(&chars).log2();
    let (mut at, mut bits) = (0, 0.0);
    while at < chars.len() {
        let (taken, more) = [repeated(&lower, at), common(&lower, at), word(&chars, at)]
            .into_iter()
            .flatten()
            .next()
            .unwrap_or((1, if is_foretold(&lower, at) { BITS_OF_FORETOLD } else { of_one }));
        (at, bits) = (at + taken, bits + more);
    }
    bits
}

/// How many characters each one was chosen from.
fn pool(chars: &[char]) -> f64 {
    let is_separator = |c: &char| "-_.:".contains(*c);
    if chars.iter().all(|c| c.is_ascii_digit() || is_separator(c)) {
        return 10.0;
    }
    if chars.iter().all(|c| c.is_ascii_hexdigit() || is_separator(c)) {
        return 16.0;
    }
    let has = |class: fn(&char) -> bool, size: f64| if chars.iter().any(class) { size } else { 0.0 };
    let letters = has(char::is_ascii_lowercase, 26.0) + has(char::is_ascii_uppercase, 26.0);
    letters + has(char::is_ascii_digit, 10.0) + has(char::is_ascii_punctuation, 2.0)
}

/// What stood before already.
fn repeated(lower: &[char], at: usize) -> Option<(usize, f64)> {
    let longest =
        (0..at).map(|from| (0..).take_while(|n| from + n < at && lower.get(at + n) == lower.get(from + n)).count());
    let length = longest.max().filter(|length| *length >= RUN_MIN)?;
    Some((length, BITS_OF_COMMON))
}

fn common(lower: &[char], at: usize) -> Option<(usize, f64)> {
    let is_here = |word: &&&str| lower[at..].iter().copied().take(word.len()).eq(word.chars());
    COMMON.iter().filter(is_here).map(|word| word.len()).max().map(|length| (length, BITS_OF_COMMON))
}

/// Letters that somebody could say: of one case but for the first, with a vowel. Hexadecimal digits are none.
fn word(chars: &[char], at: usize) -> Option<(usize, f64)> {
    if at > 0 && chars[at - 1].is_ascii_lowercase() && chars[at].is_ascii_lowercase() || pool(chars) <= 16.0 {
        return None;
    }
    let is_upper = chars.get(at + 1).is_some_and(char::is_ascii_uppercase);
    let is_of_it = |c: &&char| if is_upper { c.is_ascii_uppercase() } else { c.is_ascii_lowercase() };
    let rest = chars[at + 1..].iter().take_while(is_of_it).count();
    let length = if chars[at].is_ascii_alphabetic() { rest + 1 } else { 0 };
    let has_vowel = chars[at..at + length].iter().any(|c| "aeiouyAEIOUY".contains(*c));
    (length >= RUN_MIN && has_vowel).then_some((length, BITS_OF_LETTER * length as f64))
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
        for token in [
            "hunter2-hunter2-hunter2",
            "aaaaaaaaaaaaaaaa",
            "1234567890123456",
            "0123456789abcdef",
            "password-password",
            "Password123456789!",
            "my-secret-token-2026",
            "shop-token-0123456789",
            "a-token-of-16-characters",
            "changeme-changeme-changeme",
            "correct-horse-battery-staple",
            "qwertyuiopasdfgh",
            "outboxd-production-admin",
            "SuperSecretToken2024",
            "abcabcabcabcabcabcabc",
            "4915212345678901",
        ] {
            assert!(is_guessable(token), "{token}: {} bits", bits(token));
        }
    }

    #[test]
    fn what_was_drawn_at_random_is_not() {
        for token in [
            "k3Rz8vQm1LxT5yWd",
            "p9Bn4cJf7HsG2aXe",
            "5f1d7a9e3b8c2d604e7f",
            "1f0c7a52-6c1e-4d0b-9a37-5be2b0b0c9d1",
            "q7GmVxNc0aTz4RkWb2YhLs9D",
            "c29tZSByYW5kb20gYnl0ZXM_x-4Kq",
            "qzjvwkxhpbtrmndgfslcyeqzkvhwxjtp",
        ] {
            assert!(!is_guessable(token), "{token}: {} bits", bits(token));
        }
        for _ in 0..2_000 {
            let hex: String = rand::random::<[u8; 32]>().iter().map(|byte| format!("{byte:02x}")).collect();
            assert!(!is_guessable(&hex), "{hex}: {} bits", bits(&hex));
        }
    }
}
