//! Templates of channels: one engine, strict and bounded in work. What a template may name is checked when the
//! configuration is read, by the same function that compiles it for use.
//!
//! **Guarantee.** A variable, filter or test that does not exist is refused at start, also in a branch that is seldom
//! taken. **Limit.** Whether a row has the field that a template reads is known only when it is rendered.

use std::collections::BTreeSet;

use minijinja::machinery::{Instruction, Instructions, get_compiled_template};
use minijinja::value::Kwargs;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, Template, UndefinedBehavior, Value, filters};

use super::suggest::did_you_mean;

pub(crate) mod digest;

/// Instructions one rendering may execute: a loop over some ten thousand elements.
const FUEL: u64 = 1_000_000;

/// What templates of a request may name.
pub(crate) const REQUEST: &[&str] =
    &["id", "webhook_id", "topic", "recipient", "payload", "headers", "created_at", "now", "nonce", "with"];
/// What templates of its headers may name: the rest of the request too, so that they can sign it.
pub(crate) const HEADER: &[&str] =
    &["id", "webhook_id", "topic", "recipient", "payload", "headers", "created_at", "now", "nonce", "with", "request"];
/// What templates of an answer may name.
pub(crate) const ANSWER: &[&str] = &["response"];

/// The filters that templates of channels mostly want.
const FILTERS: [&str; 6] = ["tojson", "urlencode", "default", "upper", "lower", "trim"];

/// The engine that checks and renders.
pub(crate) fn engine() -> Environment<'static> {
    let mut engine = Environment::new();
    engine.set_undefined_behavior(UndefinedBehavior::Strict);
    engine.set_fuel(Some(FUEL));
    engine.set_auto_escape_callback(|_| AutoEscape::None);
    // The engine's own would write `null` and nothing for a field that is missing.
    engine.add_filter("tojson", |value: &Value, indent: Option<Value>, args: Kwargs| {
        let json = filters::tojson(defined(value)?, indent, args)?;
        let escaped = json.as_str().filter(|json| json.contains("\\u00"));
        Ok::<_, Error>(escaped.map(plain_json).map(Value::from_safe_string).unwrap_or(json))
    });
    engine.add_filter("urlencode", |value: &Value| filters::urlencode(defined(value)?));
    digest::add(&mut engine);
    // Without it an error does not say which variable was missing.
    engine.set_debug(true);
    engine
}

/// What a template reads.
#[derive(Debug, Default)]
pub(crate) struct Used {
    /// Of the variables that it may name.
    pub(crate) variables: Vec<&'static str>,
    /// Which of the payload's fields.
    pub(crate) payload: Fields,
    /// Which of the row's headers, in lower case.
    pub(crate) headers: Fields,
    /// Which of the channel's own constants.
    pub(crate) with: Fields,
}

/// Which fields of a variable templates read.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Fields {
    /// By these names.
    pub(crate) names: BTreeSet<String>,
    /// By names that are worked out, or by a loop over all.
    pub(crate) any: bool,
}

impl Fields {
    /// With those of another template.
    pub(crate) fn extend(&mut self, more: Fields) {
        self.names.extend(more.names);
        self.any |= more.any;
    }
}

/// Compiles `source` under `name`. The errors are reasons for an operator, all of them.
pub(crate) fn add(
    engine: &mut Environment<'static>,
    name: &str,
    source: &str,
    known: &'static [&'static str],
) -> Result<Used, Vec<String>> {
    engine.add_template_owned(name.to_owned(), source.to_owned()).map_err(|error| vec![reason(&error)])?;
    let template = engine.get_template(name).map_err(|error| vec![reason(&error)])?;
    let instructions = &get_compiled_template(&template).instructions;
    let mut unknown = unknown_filters(&template, instructions);
    let names = |i: &Instruction<'_>, known: &str| match i {
        Instruction::Lookup(name) | Instruction::CallFunction(name, _) => *name == known,
        _ => false,
    };
    let reads = |known: &str| all(instructions).any(|i| names(i, known));
    let variables = known.iter().copied().filter(|known| reads(known)).collect();
    for variable in template.undeclared_variables(false) {
        if !known.contains(&variable.as_str()) && !engine.globals().any(|(global, _)| global == variable) {
            let hint = did_you_mean(&variable, known.iter().copied());
            let hint = if hint.is_empty() { format!("; there are {}", known.join(", ")) } else { hint };
            unknown.insert(format!("there is no variable `{variable}`{hint}"));
        }
    }
    let mut headers = fields(instructions, "headers");
    headers.names = headers.names.iter().map(|name| name.to_ascii_lowercase()).collect();
    let used =
        Used { variables, payload: fields(instructions, "payload"), headers, with: fields(instructions, "with") };
    if unknown.is_empty() { Ok(used) } else { Err(unknown.into_iter().collect()) }
}

/// Checks `source` as [`add`] does.
pub(super) fn check(source: &str, known: &'static [&'static str]) -> Result<Used, Vec<String>> {
    add(&mut engine(), "template", source, known)
}

/// The engine finds these only when it comes across them, which may be in a branch that is seldom taken.
fn unknown_filters(template: &Template<'_, '_>, instructions: &Instructions<'_>) -> BTreeSet<String> {
    let mut state: State<'_, '_> = template.new_state();
    let mut unknown = BTreeSet::new();
    for instruction in all(instructions) {
        let (tried, kind, what) = match instruction {
            Instruction::ApplyFilter(filter, ..) => {
                let tried = state.apply_filter(filter, &[]).map(|_| ());
                (
                    tried,
                    ErrorKind::UnknownFilter,
                    format!(
                        "there is no filter `{filter}`{}",
                        did_you_mean(filter, FILTERS.into_iter().chain(digest::FILTERS))
                    ),
                )
            }
            Instruction::PerformTest(test, ..) => {
                let tried = state.perform_test(test, &[]).map(|_| ());
                (tried, ErrorKind::UnknownTest, format!("there is no test `{test}`"))
            }
            _ => continue,
        };
        if tried.is_err_and(|error| error.kind() == kind) {
            unknown.insert(what);
        }
    }
    unknown
}

fn fields(instructions: &Instructions<'_>, variable: &str) -> Fields {
    let mut used = Fields::default();
    for (index, instruction) in (0u32..).zip(all(instructions)) {
        if !matches!(instruction, Instruction::Lookup(name) if *name == variable) {
            continue;
        }
        let named = match (instructions.get(index + 1), instructions.get(index + 2)) {
            (Some(Instruction::GetAttr(name)), _) => Some(*name),
            (Some(Instruction::LoadConst(name)), Some(Instruction::GetItem)) => name.as_str(),
            _ => None,
        };
        match named {
            Some(name) => used.names.insert(name.to_owned()),
            None => std::mem::replace(&mut used.any, true),
        };
    }
    used
}

fn all<'a, 's>(instructions: &'a Instructions<'s>) -> impl Iterator<Item = &'a Instruction<'s>> {
    (0u32..).map_while(|index| instructions.get(index))
}

/// JSON without the escapes that the engine adds for HTML: a body is no page, and each of them takes six bytes for one.
fn plain_json(json: &str) -> String {
    let (mut plain, mut rest) = (String::with_capacity(json.len()), json);
    while let Some(at) = rest.find('\\') {
        plain.push_str(&rest[..at]);
        let escaped = match rest.get(at..at + 6) {
            Some("\\u003c") => "<",
            Some("\\u003e") => ">",
            Some("\\u0026") => "&",
            Some("\\u0027") => "'",
            // Both characters, so that none of these is found in what follows an escaped backslash.
            _ => {
                plain.push_str(&rest[at..at + 2]);
                rest = &rest[at + 2..];
                continue;
            }
        };
        plain.push_str(escaped);
        rest = &rest[at + 6..];
    }
    plain + rest
}

/// Only a failed conversion makes the engine remember which expression was undefined.
fn defined(value: &Value) -> Result<&Value, Error> {
    if value.is_undefined() { i64::try_from(value.clone()).map(|_| value) } else { Ok(value) }
}

/// The engine's error without what it might quote from the data.
pub(crate) fn reason(error: &Error) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_template_cannot_name_is_found_before_it_is_rendered() {
        let source =
            "{% if payload.rare %}{{ payload|tojso }}{{ payload is odder }}{% endif %}{{ nobody }}{{ later() }}";
        let errors = check(source, REQUEST).unwrap_err();
        let named = ["filter `tojso`", "test `odder`", "variable `nobody`", "variable `later`"];
        assert_eq!(errors.len(), named.len(), "{errors:?}");
        for name in named {
            assert!(errors.iter().any(|error| error.contains(name)), "{name}: {errors:?}");
        }
        assert!(check("{{ response.ok }}", REQUEST).is_err() && check("{{ response.ok }}", ANSWER).is_ok());
        assert!(check("{{ request.body }}", REQUEST).is_err() && check("{{ request.body }}", HEADER).is_ok());
        assert!(check("{{ payload.", REQUEST).unwrap_err()[0].starts_with("syntax error"));
        check("{% for n in range(3) %}{{ loop.index|default(n) }}{% endfor %}{{ payload is defined }}", REQUEST)
            .unwrap();
    }

    #[test]
    fn json_has_no_escapes_but_those_that_json_needs() {
        let text = "<b>'a' & \"b\"</b> \\u003c \\\\ \u{1} \n 한";
        let rendered = |source: &str| engine().render_str(source, minijinja::context! { text }).unwrap();
        assert_eq!(rendered("{{ text|tojson }}"), serde_json::to_string(text).unwrap());
        assert_eq!(
            rendered("{{ {'&': [text]}|tojson(indent=1) }}"),
            format!("{{\n \"&\": [\n  {}\n ]\n}}", serde_json::to_string(text).unwrap())
        );
    }

    #[test]
    fn headers_that_templates_read_are_known_by_name() {
        let used = |source: &str| add(&mut engine(), "body", source, REQUEST).unwrap().headers;
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let found = used(r#"{{ headers.Tenant }}{{ headers["X-Lang"]|default("en") }}"#);
        assert_eq!(found, Fields { names: names(&["tenant", "x-lang"]), any: false });
        for source in ["{{ headers|tojson }}", "{% for h in headers %}{% endfor %}", "{{ headers[topic] }}"] {
            assert!(used(source).any, "{source}");
        }
        assert_eq!(used("{{ topic }}"), Fields::default());
        let payload = |source: &str| add(&mut engine(), "url", source, REQUEST).unwrap().payload;
        let found = payload(r#"{{ payload.hook.url }}{{ payload["id"]|default(0) }}"#);
        assert_eq!(found, Fields { names: names(&["hook", "id"]), any: false });
        for source in ["{{ payload[0] }}", "{% if payload is defined %}{% endif %}", "{{ payload|length }}"] {
            assert!(payload(source).any, "{source}");
        }
        let sliced = add(&mut engine(), "body", "{{ recipient[:3] }}", REQUEST).unwrap();
        assert_eq!(sliced.variables, ["recipient"]);
    }
}
