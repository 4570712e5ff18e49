//! From what was written to what is meant: one value, by its key's kind.
//!
//! **Guarantee.** Whatever passes fits its field, and no error quotes a secret. **Limit.** What comes from the
//! environment has no type of its own: the key decides.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ipnet::IpNet;
use serde_json::{Value as Json, json};

use super::error::did_you_mean;
use super::key::{Kind, show_ms};

/// What was written.
#[derive(Debug, Clone)]
pub(super) enum Given {
    /// One value, behind what it is called.
    One(&'static str, String),
    /// A TOML array.
    List(Vec<Given>),
}

/// From the environment, a flag or a filled-in `${VAR}`: no type of its own, the key decides.
pub(super) const OPEN: &str = "";
pub(super) const STRING: &str = "a string";
pub(super) const NUMBER: &str = "a number";
pub(super) const FLAG: &str = "a boolean";

impl Given {
    /// From the environment or a flag.
    pub(super) fn open(text: &str) -> Given {
        Given::One(OPEN, text.to_owned())
    }

    /// The text of one value whose type fits.
    fn one(&self, fits: &[&str], wanted: &str) -> Result<String, String> {
        match self {
            Given::One(OPEN, text) => Ok(text.trim().to_owned()),
            Given::One(found, text) if fits.contains(found) => Ok(text.clone()),
            Given::One(found, _) => Err(format!("takes {wanted}, not {found}")),
            Given::List(_) => Err(format!("takes {wanted}, not a list")),
        }
    }

    fn text(&self, wanted: &str) -> Result<String, String> {
        self.one(&[STRING], wanted)
    }

    fn list(&self, wanted: &str) -> Result<Vec<String>, String> {
        match self {
            Given::One(OPEN, text) => {
                Ok(text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect())
            }
            Given::List(items) => items.iter().map(|item| item.text(wanted)).collect(),
            one => one.text(wanted).map(|text| vec![text]),
        }
    }
}

/// As one would write it in the environment.
impl fmt::Display for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Given::One(_, text) => f.write_str(text),
            Given::List(items) => f.write_str(&items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
        }
    }
}

/// Reads `given` as `kind` says, in the form that its field is made from; the error says what is wrong and what to
/// write. Never quotes a secret.
pub(super) fn parse(kind: Kind, given: &Given) -> Result<Json, String> {
    Ok(match kind {
        // Templates may begin or end with space on purpose, so text is taken as it is.
        Kind::Text => match given {
            Given::One(OPEN, text) => json!(text),
            other => json!(other.text("a string")?),
        },
        Kind::Secret | Kind::SecretUrl => match given.text("a string")? {
            text if text.is_empty() => return Err("is empty".into()),
            text => json!(text),
        },
        Kind::Secrets => json!(given.list("a string or a list of strings")?),
        Kind::Choice(words) => json!(choice(words, &given.text("a string")?)?),
        Kind::Flag => match given.one(&[FLAG], "true or false")?.as_str() {
            "true" => json!(true),
            "false" => json!(false),
            text => return Err(format!("takes true or false, not {text:?}")),
        },
        Kind::Integer(min, max) => json!(integer(min, max, &given.one(&[NUMBER], "a whole number")?)?),
        Kind::Bytes(min, max) => {
            json!(bytes(min, max, &given.one(&[STRING, NUMBER], "a size such as \"16KiB\"")?)?)
        }
        Kind::Ratio => json!(ratio(&given.one(&[NUMBER], "a number from 0 to 1")?)?),
        Kind::Span(min, max) => {
            json!(span(min, max, &given.text("a duration with its unit, such as \"5s\" or \"10m\"")?)?)
        }
        Kind::SpanOrNever(min, max) => match given.text("a duration such as \"10s\", or \"never\"")?.as_str() {
            "never" => Json::Null,
            text => json!(span(min, max, text).map_err(|what| format!("{what}, or \"never\""))?),
        },
        Kind::Rate => rate(&given.text("a rate such as \"100/s\"")?)?,
        Kind::Addr => json!(address(&given.text("an address such as \"127.0.0.1:8080\"")?)?),
        Kind::Texts => json!(given.list("a list of strings")?),
        Kind::Networks => {
            json!(given.list("a list of networks")?.iter().map(network).collect::<Result<Vec<_>, _>>()?)
        }
    })
}

fn choice(words: &[&'static str], text: &str) -> Result<&'static str, String> {
    let known = || words.iter().map(|word| format!("{word:?}")).collect::<Vec<_>>().join(", ");
    let word = words.iter().find(|word| word.eq_ignore_ascii_case(text)).copied();
    word.ok_or_else(|| format!("{text:?} is none of {}{}", known(), did_you_mean(text, words.iter().copied())))
}

fn integer(min: u64, max: u64, text: &str) -> Result<u64, String> {
    let number: i128 = text.parse().map_err(|_| format!("takes a whole number, not {text:?}"))?;
    let within = u64::try_from(number).ok().filter(|n| (min..=max).contains(n));
    within.ok_or_else(|| format!("is {text}; it takes {min} to {max}"))
}

fn bytes(min: u64, max: u64, text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit: Option<u64> = match text[digits.len()..].trim() {
        "" | "B" => Some(1),
        "KiB" => Some(1 << 10),
        "MiB" => Some(1 << 20),
        "GiB" => Some(1 << 30),
        "kB" | "KB" => Some(1_000),
        "MB" => Some(1_000_000),
        "GB" => Some(1_000_000_000),
        _ => None,
    };
    let (Some(unit), Ok(count)) = (unit, digits.parse::<u64>()) else {
        return Err(format!("{text:?} is no size; write it as \"16KiB\" or \"1MiB\""));
    };
    let within = count.checked_mul(unit).filter(|n| (min..=max).contains(n));
    within.ok_or_else(|| format!("is {text}; it takes {min} to {max} bytes"))
}

fn ratio(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| format!("takes a number from 0 to 1, not {text:?}"))?;
    if (0.0..=1.0).contains(&number) { Ok(number) } else { Err(format!("is {text}; it takes 0 to 1")) }
}

fn span(min_ms: u64, max_ms: u64, text: &str) -> Result<Duration, String> {
    let span = humantime::parse_duration(text).map_err(|_| {
        format!("{text:?} is no duration; write a number and its unit, such as \"5s\", \"10m\" or \"7d\"")
    })?;
    let within = (Duration::from_millis(min_ms)..=Duration::from_millis(max_ms)).contains(&span);
    if within { Ok(span) } else { Err(format!("is {text}; it takes {} to {}", show_ms(min_ms), show_ms(max_ms))) }
}

fn rate(text: &str) -> Result<Json, String> {
    let parts = text.split_once('/').and_then(|(count, unit)| Some((count.trim().parse::<u32>().ok()?, unit.trim())));
    let (count, seconds) = match parts {
        Some((0, _)) => return Err("is zero; leave the key out for no limit, or pause the channel to stop it".into()),
        Some((count, "s" | "sec" | "second")) => (count, 1),
        Some((count, "m" | "min" | "minute")) => (count, 60),
        Some((count, "h" | "hour")) => (count, 3600),
        _ => return Err(format!("{text:?} is no rate; write it as \"100/s\", \"1000/m\" or \"5000/h\"")),
    };
    Ok(json!({ "count": count, "per": Duration::from_secs(seconds) }))
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let numeric = text.strip_prefix("localhost:").map_or(text.to_owned(), |port| format!("127.0.0.1:{port}"));
    numeric
        .parse()
        .map_err(|_| format!("{text:?} is no IP address and port; write it as \"127.0.0.1:8080\" or \"[::1]:8080\""))
}

fn network(text: &String) -> Result<IpNet, String> {
    let network = text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    network.map_err(|_| format!("{text:?} is no network; write it as \"10.0.0.0/8\""))
}
