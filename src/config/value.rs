//! From what was written to what is meant: one value, by its key's kind.
//!
//! **Guarantee.** Whatever passes fits its field, and no error quotes a secret. **Limit.** What comes from the
//! environment has no type of its own: the key decides.

use std::net::SocketAddr;
use std::time::Duration;

use ipnet::IpNet;
use serde_json::{Value as Json, json};

use super::key::{self, Kind};
use super::suggest::did_you_mean;

/// What was written.
#[derive(Debug, Clone)]
pub(super) enum Given {
    /// From the environment, a flag or a filled-in `${VAR}`: no type of its own, the key decides.
    Untyped(String),
    /// A TOML string.
    String(String),
    /// A TOML number, as written without underscores.
    Number(String),
    /// A TOML boolean.
    Flag(bool),
    /// A TOML array.
    List(Vec<Given>),
    /// Another TOML type, by its name.
    Other(&'static str),
}

impl Given {
    /// The text of a scalar whose type is `wanted` or open.
    fn scalar(&self, wanted: &str, typed: impl Fn(&Given) -> Option<String>) -> Result<String, String> {
        match self {
            Given::Untyped(text) => Ok(text.trim().to_owned()),
            other => typed(other).ok_or_else(|| format!("takes {wanted}, not {}", other.type_name())),
        }
    }

    fn string(&self, wanted: &str) -> Result<String, String> {
        self.scalar(wanted, |given| match given {
            Given::String(text) => Some(text.clone()),
            _ => None,
        })
    }

    fn number(&self, wanted: &str) -> Result<String, String> {
        self.scalar(wanted, |given| match given {
            Given::Number(text) => Some(text.clone()),
            _ => None,
        })
    }

    fn strings(&self, wanted: &str) -> Result<Vec<String>, String> {
        match self {
            Given::Untyped(text) => {
                Ok(text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect())
            }
            Given::List(items) => items.iter().map(|item| item.string(wanted)).collect(),
            other => other.string(wanted).map(|text| vec![text]),
        }
    }

    fn type_name(&self) -> &'static str {
        match self {
            Given::Untyped(_) | Given::String(_) => "a string",
            Given::Number(_) => "a number",
            Given::Flag(_) => "a boolean",
            Given::List(_) => "a list",
            Given::Other(name) => name,
        }
    }
}

/// Reads `given` as `kind` says, in the form that its field is made from; the error says what is wrong and what to
/// write. Never quotes a secret.
pub(super) fn parse(kind: Kind, given: &Given) -> Result<Json, String> {
    match kind {
        // Templates may begin or end with space on purpose, so text is taken as it is.
        Kind::Text => match given {
            Given::Untyped(text) => Ok(json!(text)),
            other => other.string("a string").map(Json::from),
        },
        Kind::Secret | Kind::SecretUrl => {
            let text = given.string("a string")?;
            if text.is_empty() { Err("is empty".into()) } else { Ok(json!(text)) }
        }
        Kind::Secrets => given.strings("a string or a list of strings").map(Json::from),
        Kind::Choice(words) => choice(words, &given.string("a string")?).map(Json::from),
        Kind::Flag => match given {
            Given::Flag(flag) => Ok(json!(flag)),
            other => match other.scalar("true or false", |_| None)?.as_str() {
                "true" => Ok(json!(true)),
                "false" => Ok(json!(false)),
                text => Err(format!("takes true or false, not {text:?}")),
            },
        },
        Kind::Integer(min, max) => integer(min, max, &given.number("a whole number")?).map(Json::from),
        Kind::Bytes(min, max) => {
            let text = match given {
                Given::Number(text) => text.clone(),
                other => other.string("a size such as \"16KiB\"")?,
            };
            bytes(min, max, &text).map(Json::from)
        }
        Kind::Ratio => ratio(&given.number("a number from 0 to 1")?).map(Json::from),
        Kind::Duration(min, max) => {
            duration(min, max, &given.string("a duration with its unit, such as \"5s\" or \"10m\"")?)
        }
        Kind::DurationOrNever(min, max) => match given.string("a duration such as \"10s\", or \"never\"")?.as_str() {
            "never" => Ok(Json::Null),
            text => duration(min, max, text).map_err(|what| format!("{what}, or \"never\"")),
        },
        Kind::Rate => rate(&given.string("a rate such as \"100/s\"")?),
        Kind::Addr => {
            let text = given.string("an address such as \"127.0.0.1:8080\"")?;
            let addr = text.strip_prefix("localhost:").map_or(text.clone(), |port| format!("127.0.0.1:{port}"));
            addr.parse().map(|addr: SocketAddr| json!(addr)).map_err(|_| {
                format!("{text:?} is no IP address and port; write it as \"127.0.0.1:8080\" or \"[::1]:8080\"")
            })
        }
        Kind::Texts => given.strings("a list of strings").map(Json::from),
        Kind::Networks => networks(&given.strings("a list of networks")?),
    }
}

fn choice(words: &[&str], text: &str) -> Result<String, String> {
    if let Some(word) = words.iter().find(|word| word.eq_ignore_ascii_case(text)) {
        return Ok((*word).to_owned());
    }
    let known = words.iter().map(|word| format!("{word:?}")).collect::<Vec<_>>().join(", ");
    Err(format!("{text:?} is none of {known}{}", did_you_mean(text, words.iter().copied())))
}

fn integer(min: u64, max: u64, text: &str) -> Result<u64, String> {
    let number: i128 = text.parse().map_err(|_| format!("takes a whole number, not {text:?}"))?;
    u64::try_from(number)
        .ok()
        .filter(|n| (min..=max).contains(n))
        .ok_or_else(|| format!("is {text}; it takes {min} to {max}"))
}

fn bytes(min: u64, max: u64, text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit: u64 = match text[digits.len()..].trim() {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "kB" | "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        _ => return Err(format!("{text:?} is no size; write it as \"16KiB\" or \"1MiB\"")),
    };
    let count: u64 = digits.parse().map_err(|_| format!("{text:?} is no size; write it as \"16KiB\" or \"1MiB\""))?;
    count
        .checked_mul(unit)
        .filter(|n| (min..=max).contains(n))
        .ok_or_else(|| format!("is {text}; it takes {min} to {max} bytes"))
}

fn ratio(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| format!("takes a number from 0 to 1, not {text:?}"))?;
    if (0.0..=1.0).contains(&number) { Ok(number) } else { Err(format!("is {text}; it takes 0 to 1")) }
}

fn duration(min_ms: u64, max_ms: u64, text: &str) -> Result<Json, String> {
    let span = humantime::parse_duration(text).map_err(|_| {
        format!("{text:?} is no duration; write a number and its unit, such as \"5s\", \"10m\" or \"7d\"")
    })?;
    let (min, max) = (Duration::from_millis(min_ms), Duration::from_millis(max_ms));
    if (min..=max).contains(&span) {
        return Ok(json!(span));
    }
    Err(format!("is {text}; it takes {} to {}", key::show_ms(min_ms), key::show_ms(max_ms)))
}

fn rate(text: &str) -> Result<Json, String> {
    let wrong = || format!("{text:?} is no rate; write it as \"100/s\", \"1000/m\" or \"5000/h\"");
    let (count, unit) = text.split_once('/').ok_or_else(wrong)?;
    let count: u32 = count.trim().parse().map_err(|_| wrong())?;
    let per = match unit.trim() {
        "s" | "sec" | "second" => Duration::from_secs(1),
        "m" | "min" | "minute" => Duration::from_secs(60),
        "h" | "hour" => Duration::from_secs(3600),
        _ => return Err(wrong()),
    };
    if count == 0 {
        return Err("is zero; leave the key out for no limit, or pause the channel to stop it".into());
    }
    Ok(json!({ "count": count, "per": per }))
}

fn networks(texts: &[String]) -> Result<Json, String> {
    let one = |text: &String| {
        let address = || text.parse().ok().map(|ip: std::net::IpAddr| IpNet::from(ip));
        let network: Option<IpNet> = text.parse().ok().or_else(address);
        network.map_or_else(
            || Err(format!("{text:?} is no network; write it as \"10.0.0.0/8\"")),
            |network| Ok(json!(network)),
        )
    };
    texts.iter().map(one).collect()
}
