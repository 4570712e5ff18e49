//! What a 2xx answer means on channels that say how to read it: some providers say no inside a 200.
//!
//! | `accepted_when` gives | means |
//! |---|---|
//! | `true` | sent |
//! | `transient` | a failure that may pass: tried again |
//! | `permanent`, `false` or nothing | a failure that stays: the next channel |
//! | `transient: why`, `permanent: why` | the same, and why, for the error |
//! | anything else, or an error | nobody can tell: FAILED, neither repeated nor sent elsewhere |
//!
//! The provider has the request, so what cannot be read is never repeated by itself: an error in a template would
//! otherwise be paid for with every repeat and every failover. A streak of it opens the circuit, so that the backlog
//! waits for the mended template.

use std::collections::BTreeMap;
use std::sync::Arc;

use ::http::{HeaderMap, StatusCode};
use minijinja::Value;
use tracing::debug;

use super::template::{Templates, Text};
use crate::config::{ChannelConfig, template};
use crate::retry::Failure;

/// Bytes that `accepted_when` may give.
const WORD_BYTES_MAX: usize = 1 << 10;
/// Bytes of a provider's id at most.
const ID_BYTES_MAX: usize = 512;

/// How the answers of a channel are read.
#[derive(Debug)]
pub(super) struct Answers {
    channel: Arc<str>,
    templates: Templates,
    accepted_when: Option<Text>,
    provider_id: Option<Text>,
}

/// A 2xx answer.
pub(super) struct Answer<'a> {
    pub(super) status: StatusCode,
    pub(super) headers: &'a HeaderMap,
    pub(super) body: &'a [u8],
}

/// What became of reading an answer's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Body {
    /// All of it is there.
    Whole,
    /// It has more than so many bytes.
    LongerThan(usize),
    /// It ended too early, or its time was over.
    BrokenOff,
}

impl Answers {
    /// None if the channel reads no answers. The error is a reason for an operator.
    pub(super) fn new(channel: &Arc<str>, config: &ChannelConfig) -> Result<Option<Answers>, String> {
        if config.accepted_when.is_none() && config.provider_id.is_none() {
            return Ok(None);
        }
        let mut templates = Templates::new(template::ANSWER);
        let mut add = |name, source: &Option<String>| source.as_deref().map(|s| templates.add(name, s)).transpose();
        let accepted_when = add("accepted_when", &config.accepted_when)?;
        let provider_id = add("provider_id", &config.provider_id)?;
        Ok(Some(Answers { channel: Arc::clone(channel), templates, accepted_when, provider_id }))
    }

    /// The provider's own id of the message, if the channel says where it stands and it stands there.
    pub(super) fn provider_id(&self, context: &Value) -> Option<String> {
        match self.render(self.provider_id.as_ref()?, context, ID_BYTES_MAX) {
            // How a template writes null.
            Ok(id) if id.trim() == "None" => None,
            Ok(id) => super::http::printable(id.trim().as_bytes()),
            Err(reason) => {
                debug!(channel = %self.channel, reason, "an answer has no provider_id");
                None
            }
        }
    }

    /// Whether the provider accepted it; else what may follow, and why: as the template says, else by the beginning of
    /// the answer.
    pub(super) fn accepts(&self, context: &Value, body: Body, bytes: &[u8]) -> Result<(), (Failure, String)> {
        let Some(template) = &self.accepted_when else { return Ok(()) };
        let reason = match body {
            Body::BrokenOff => return Err((Failure::Ambiguous, "the answer broke off".to_owned())),
            Body::LongerThan(bytes) => format!("the answer has more than {bytes} bytes (response_bytes_max)"),
            Body::Whole => match self.render(template, context, WORD_BYTES_MAX) {
                Err(reason) => reason,
                // A template writes `True`.
                Ok(given) => {
                    let (word, why) = given.trim().split_once(':').unwrap_or((given.trim(), ""));
                    match (word.trim_end().to_ascii_lowercase().as_str(), why.trim()) {
                        ("true", "") => return Ok(()),
                        ("transient", "") => {
                            return Err((Failure::Transient, not_accepted(&["transient", &words(bytes)])));
                        }
                        ("permanent" | "false" | "", "") => {
                            return Err((Failure::Permanent, not_accepted(&[&words(bytes)])));
                        }
                        ("transient", why) => return Err((Failure::Transient, not_accepted(&[why]))),
                        ("permanent", why) => return Err((Failure::Permanent, not_accepted(&[why]))),
                        _ => format!(
                            "template accepted_when: `{}` is no verdict",
                            quoted(&given.trim().to_ascii_lowercase(), 40)
                        ),
                    }
                }
            },
        };
        Err((Failure::Unreadable, format!("whether it was accepted cannot be told: {reason}")))
    }

    fn render(&self, text: &Text, context: &Value, bytes_max: usize) -> Result<String, String> {
        match text {
            Text::Fixed(text) => Ok(text.clone()),
            Text::Template(name) => self.templates.render(name, context, bytes_max),
        }
    }
}

impl Answer<'_> {
    /// `response`: the fields of a JSON object, and over them `status`, `headers`, `text` and `body`, which is the JSON
    /// as a whole and leads to fields of these four names.
    pub(super) fn context(&self) -> Value {
        let mut response = BTreeMap::new();
        if let Ok(json) = serde_json::from_slice::<BTreeMap<String, Value>>(self.body) {
            response.clone_from(&json);
            response.insert("body".to_owned(), Value::from(json));
        } else if let Ok(json) = serde_json::from_slice::<Value>(self.body) {
            response.insert("body".to_owned(), json);
        }
        let headers = self.headers.keys().map(|name| {
            let values = self.headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
            (name.to_string(), Value::from(values.collect::<Vec<_>>().join(", ")))
        });
        let headers: BTreeMap<String, Value> = headers.collect();
        response.insert("headers".to_owned(), Value::from(headers));
        response.insert("status".to_owned(), Value::from(self.status.as_u16()));
        response.insert("text".to_owned(), Value::from(String::from_utf8_lossy(self.body).into_owned()));
        Value::from_pairs([("response", Value::from(response))])
    }
}

/// A no, and what is said of it. What stands behind the first colon is not for everybody who reads errors.
fn not_accepted(said: &[&str]) -> String {
    let said = said.iter().filter(|words| !words.is_empty()).map(|words| quoted(words, 200));
    std::iter::once("not accepted".to_owned()).chain(said).collect::<Vec<_>>().join(": ")
}

/// An answer on one line.
fn words(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The beginning of what a template gave: it may have come from the answer.
fn quoted(text: &str, chars_max: usize) -> String {
    text.chars().take(chars_max).map(|c| if c.is_control() { ' ' } else { c }).collect()
}
