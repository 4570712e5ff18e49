//! Templates for url, headers and body: compiled once, strict, bounded in work and output.
//!
//! A template that names a variable which does not exist is refused at start; a field that is missing in the
//! data of one notification fails that notification, with the field's name.

use std::io;

use minijinja::value::Kwargs;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior, Value, filters};

use super::Outgoing;

/// Instructions one rendering may execute: a loop over some ten thousand elements.
const FUEL: u64 = 1_000_000;

/// What templates may name.
const VARIABLES: [&str; 7] = ["id", "webhook_id", "topic", "recipient", "payload", "headers", "created_at"];

/// A text of the configuration, compiled if it is a template.
#[derive(Debug)]
pub(super) enum Text {
    /// No template: always the same.
    Fixed(String),
    /// The name under which the engine knows it.
    Template(String),
}

/// The compiled templates of one channel.
#[derive(Debug)]
pub(super) struct Templates {
    engine: Environment<'static>,
    /// What any of them names, so that the payload is parsed only where it is needed.
    used: Vec<&'static str>,
}

impl Templates {
    pub(super) fn new() -> Templates {
        let mut engine = Environment::new();
        engine.set_undefined_behavior(UndefinedBehavior::Strict);
        engine.set_fuel(Some(FUEL));
        engine.set_auto_escape_callback(|_| AutoEscape::None);
        // The engine's own would write `null` and nothing for a field that is missing.
        engine.add_filter("tojson", |value: &Value, indent: Option<Value>, args: Kwargs| {
            filters::tojson(defined(value)?, indent, args)
        });
        engine.add_filter("urlencode", |value: &Value| filters::urlencode(defined(value)?));
        // Without it an error does not say which variable was missing.
        engine.set_debug(true);
        Templates { engine, used: Vec::new() }
    }

    /// Compiles `source` under `name`. The error is a reason for an operator.
    pub(super) fn add(&mut self, name: &str, source: &str) -> Result<Text, String> {
        if first_tag(source).is_none() {
            return Ok(Text::Fixed(source.to_owned()));
        }
        self.engine
            .add_template_owned(name.to_owned(), source.to_owned())
            .map_err(|error| format!("template {name}: {}", reason(&error)))?;
        let named = self
            .engine
            .get_template(name)
            .map_err(|error| format!("template {name}: {}", reason(&error)))?
            .undeclared_variables(false);
        for variable in named {
            if self.engine.globals().any(|(global, _)| global == variable) {
                continue;
            }
            let Some(known) = VARIABLES.into_iter().find(|known| *known == variable) else {
                return Err(format!(
                    "template {name}: there is no variable `{variable}`; there are {}",
                    VARIABLES.join(", ")
                ));
            };
            if !self.used.contains(&known) {
                self.used.push(known);
            }
        }
        Ok(Text::Template(name.to_owned()))
    }

    /// What the templates see of one notification; none if they look at nothing.
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
                _ => json(outgoing.headers.map_or("{}", |headers| headers.get()), "headers")?,
            };
            pairs.push((*variable, value));
        }
        Ok(Some(Value::from_pairs(pairs)))
    }

    /// Renders into at most `bytes_max` bytes. The error is a reason for an operator.
    pub(super) fn render(&self, name: &str, context: &Value, bytes_max: usize) -> Result<String, String> {
        let mut out = Bounded { bytes: Vec::new(), bytes_max };
        let template =
            self.engine.get_template(name).map_err(|error| format!("template {name}: {}", reason(&error)))?;
        match template.render_captured_to(context.clone(), &mut out) {
            Ok(_) => String::from_utf8(out.bytes).map_err(|_| format!("template {name}: not UTF-8")),
            Err(error) if error.kind() == ErrorKind::WriteFailure => {
                Err(format!("template {name}: more than {bytes_max} bytes"))
            }
            Err(error) => Err(format!("template {name}: {}", reason(&error))),
        }
    }
}

/// Where the first expression, statement or comment begins.
pub(super) fn first_tag(source: &str) -> Option<usize> {
    ["{{", "{%", "{#"].into_iter().filter_map(|tag| source.find(tag)).min()
}

/// Only a failed conversion makes the engine remember which expression was undefined.
fn defined(value: &Value) -> Result<&Value, Error> {
    if value.is_undefined() { i64::try_from(value.clone()).map(|_| value) } else { Ok(value) }
}

fn json(text: &str, variable: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("{variable} is not JSON: {error}"))
}

/// The engine's error without what it might quote from the data.
fn reason(error: &Error) -> String {
    let line = error.line().map(|line| format!(" (line {line})")).unwrap_or_default();
    let detail = error.detail().unwrap_or_default();
    if let Some((before, _)) = detail.rsplit_once("` is undefined") {
        let expression = before.rsplit_once('`').map_or(before, |(_, expression)| expression);
        return format!("`{expression}` is undefined{line}");
    }
    match error.kind() {
        ErrorKind::OutOfFuel => format!("more than {FUEL} steps{line}"),
        kind @ (ErrorKind::SyntaxError | ErrorKind::UnknownFilter | ErrorKind::UnknownFunction) => {
            format!("{kind}: {detail}{line}")
        }
        kind => format!("{kind}{line}"),
    }
}

/// Refuses what does not fit, so that a runaway loop cannot fill the memory.
struct Bounded {
    bytes: Vec<u8>,
    bytes_max: usize,
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
        let mut templates = Templates::new();
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
