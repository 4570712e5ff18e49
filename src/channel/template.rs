//! Templates for url, headers and body: compiled once, strict, bounded in work and output.
//!
//! A template that names a variable which does not exist is refused at start; a field that is missing in the
//! data of one notification fails that notification, with the field's name.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::sync::Arc;

use chrono::{DateTime, SecondsFormat, Utc};
use minijinja::value::{Object, merge_maps};
use minijinja::{Environment, Error, ErrorKind, State, Value};
use secrecy::{ExposeSecret as _, SecretString};

use super::Outgoing;
use crate::config::template::{self, Fields, digest};

/// Bytes that a text may have in memory beside those that it fills.
const SPARE_BYTES_MAX: usize = 16 << 10;
/// Bytes of a nonce at most.
const NONCE_BYTES_MAX: usize = 64;

/// A text of the configuration, compiled if it is a template.
#[derive(Debug)]
pub(super) enum Text {
    /// No template: always the same.
    Fixed(String),
    /// The name under which the engine knows it.
    Template(String),
}

/// The compiled templates of one channel's requests, or of its answers.
pub(super) struct Templates {
    engine: Environment<'static>,
    /// What they may name.
    known: &'static [&'static str],
    /// What any of them names, so that the payload is parsed only where it is needed.
    used: BTreeSet<&'static str>,
    payload: Fields,
    headers: Fields,
    /// The channel's own constants.
    with: Value,
}

/// Leaves out the engine, which would print the templates with the tokens in them.
impl fmt::Debug for Templates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Templates").field("used", &self.used).finish_non_exhaustive()
    }
}

impl Templates {
    /// None yet; they may name what is `known`.
    pub(super) fn new(known: &'static [&'static str]) -> Templates {
        let (used, payload, headers) = Default::default();
        Templates { engine: template::engine(), known, used, payload, headers, with: Value::UNDEFINED }
    }

    /// With the channel's own constants.
    pub(super) fn with(self, with: &BTreeMap<String, SecretString>) -> Templates {
        let pairs = with.iter().map(|(name, value)| (name.as_str(), Value::from(value.expose_secret())));
        Templates { with: Value::from_pairs(pairs), ..self }
    }

    /// Compiles `source` under `name`. The error is a reason for an operator.
    pub(super) fn add(&mut self, name: &str, source: &str) -> Result<Text, String> {
        self.add_knowing(name, source, self.known)
    }

    /// As [`Templates::add`], of a text that may name what is `known`.
    pub(super) fn add_knowing(
        &mut self,
        name: &str,
        source: &str,
        known: &'static [&'static str],
    ) -> Result<Text, String> {
        if first_tag(source).is_none() {
            return Ok(Text::Fixed(source.to_owned()));
        }
        let used = template::add(&mut self.engine, name, source, known)
            .map_err(|reasons| format!("template {name}: {}", reasons.join("; ")))?;
        self.used.extend(used.variables);
        self.payload.extend(used.payload);
        self.headers.extend(used.headers);
        Ok(Text::Template(name.to_owned()))
    }

    /// The payload's fields that the templates read that were added until now; `None`: any of them, or all of it.
    pub(super) fn payload_fields(&self) -> Option<Vec<String>> {
        (!self.payload.any).then(|| self.payload.names.iter().cloned().collect())
    }

    /// Whether a template reads the row's header of this name, in lower case.
    pub(super) fn read_header(&self, name: &str) -> bool {
        self.headers.any || self.headers.names.contains(name)
    }

    /// What the templates see of one attempt; none if they read nothing.
    pub(super) fn context(&self, outgoing: &Outgoing<'_>) -> Result<Option<Value>, String> {
        if self.used.is_empty() {
            return Ok(None);
        }
        let mut pairs = Vec::with_capacity(self.used.len());
        for variable in &self.used {
            let value = match *variable {
                "id" => Value::from(outgoing.id.0),
                "webhook_id" => Value::from(outgoing.webhook_id),
                "topic" => Value::from(outgoing.topic),
                "recipient" => Value::from(outgoing.recipient),
                "created_at" => Value::from(super::envelope::timestamp(outgoing.created_at)),
                "payload" => json(outgoing.payload.get(), "payload")?,
                "now" => now(Utc::now()),
                "nonce" => Value::from_object(Nonce(rand::random())),
                "with" => self.with.clone(),
                // Not known before the rest of it is rendered.
                "request" => continue,
                _ => json(outgoing.headers.map_or("{}", |headers| headers.get()), "headers")?,
            };
            pairs.push((*variable, value));
        }
        Ok(Some(Value::from_pairs(pairs)))
    }

    /// The same with the request that headers sign, if one does.
    pub(super) fn with_request(&self, context: &Value, method: &str, path: &str, body: &[u8]) -> Option<Value> {
        self.used.contains("request").then(|| {
            let body = std::str::from_utf8(body).map_or_else(|_| Value::from_bytes(body.to_vec()), Value::from);
            let request = [("method", Value::from(method)), ("path", Value::from(path)), ("body", body)];
            merge_maps([context.clone(), Value::from_pairs([("request", Value::from_pairs(request))])])
        })
    }

    /// Renders into at most `bytes_max` bytes. The error is a reason for an operator.
    pub(super) fn render(&self, name: &str, context: &Value, bytes_max: usize) -> Result<String, String> {
        let mut out = Bounded { bytes: Vec::new(), bytes_max };
        let compiled =
            self.engine.get_template(name).map_err(|error| format!("template {name}: {}", template::reason(&error)))?;
        match compiled.render_captured_to(context.clone(), &mut out) {
            Ok(_) => String::from_utf8(out.into_bytes()).map_err(|_| format!("template {name}: not UTF-8")),
            Err(error) if error.kind() == ErrorKind::WriteFailure => {
                Err(format!("template {name}: more than {bytes_max} bytes"))
            }
            Err(error) => Err(format!("template {name}: {}", template::reason(&error))),
        }
    }
}

/// One instant, in the forms that providers ask for.
fn now(now: DateTime<Utc>) -> Value {
    Value::from_pairs([
        ("unix", Value::from(now.timestamp())),
        ("unix_ms", Value::from(now.timestamp_millis())),
        ("rfc3339", Value::from(now.to_rfc3339_opts(SecondsFormat::Secs, true))),
    ])
}

/// `nonce(16)`: so many random bytes in hexadecimal digits, the same all through one attempt.
#[derive(Debug)]
struct Nonce([u8; NONCE_BYTES_MAX]);

impl Object for Nonce {
    fn call(self: &Arc<Self>, _state: &mut State<'_, '_>, args: &[Value]) -> Result<Value, Error> {
        let length = match args {
            [length] => usize::try_from(length.clone()).ok(),
            _ => None,
        };
        let bytes = length.filter(|length| *length > 0).and_then(|length| self.0.get(..length));
        let bytes = bytes.ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "nonce takes 1 to 64 bytes"))?;
        Ok(Value::from(digest::hex(bytes)))
    }
}

/// Where the first expression, statement or comment begins.
pub(super) fn first_tag(source: &str) -> Option<usize> {
    ["{{", "{%", "{#"].into_iter().filter_map(|tag| source.find(tag)).min()
}

fn json(text: &str, variable: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("{variable} is not JSON: {error}"))
}

/// Refuses what does not fit, so that a runaway loop cannot fill the memory.
struct Bounded {
    bytes: Vec<u8>,
    bytes_max: usize,
}

impl Bounded {
    /// A large body is kept for as long as its call, and no more memory than it fills.
    fn into_bytes(mut self) -> Vec<u8> {
        if self.bytes.capacity() > self.bytes.len() + SPARE_BYTES_MAX {
            self.bytes.shrink_to_fit();
        }
        self.bytes
    }
}

impl io::Write for Bounded {
    fn write(&mut self, chunk: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + chunk.len() > self.bytes_max {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(chunk);
        Ok(chunk.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(source: &str) -> Result<String, String> {
        let mut templates = Templates::new(template::REQUEST);
        templates.add("body", source)?;
        let payload = json(r#"{"name": "a/b c", "none": null, "n": 3}"#, "payload")?;
        templates.render("body", &Value::from_pairs([("payload", payload)]), 1000)
    }

    #[test]
    fn a_missing_field_is_an_error_in_every_filter_but_default() {
        for source in
            ["{{ payload.x }}", "{{ payload.x|tojson }}", "{{ payload.x|urlencode }}", "{{ payload.x|upper }}"]
        {
            let error = render(source).unwrap_err();
            assert!(error.contains("template body") && error.contains("payload.x"), "{source}: {error}");
        }
        assert_eq!(render("{{ payload.x|default('-') }}").unwrap(), "-");
        assert_eq!(render("{{ payload.none|tojson }} {{ payload.n }}").unwrap(), "null 3");
        assert_eq!(render("{{ payload.name|urlencode }}").unwrap(), "a/b%20c");
    }

    #[test]
    fn what_templates_do_not_know_is_named() {
        for (source, named) in [("{{ payload|tojso }}", "tojso"), ("{{ now() }}", "now"), ("{{ payload.", "syntax")] {
            let error = render(source).unwrap_err();
            assert!(error.contains(named), "{source}: {error}");
        }
    }
}
