//! Templates of channels: one engine, strict and bounded in work. What a template may name is checked when the
//! configuration is read, by the same function that compiles it for use.
//!
//! **Guarantee.** A variable, filter or test that does not exist is refused at start, also in a branch that is seldom
//! taken. **Limit.** Whether a row has the field that a template reads is known only when it is rendered.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use md5::Md5;
use minijinja::machinery::{Instruction, Instructions, get_compiled_template};
use minijinja::value::Kwargs;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, Template, UndefinedBehavior, Value, filters};
use sha1::Sha1;
use sha2::{Digest, Sha256};

use super::error::did_you_mean;

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

/// Filters by which templates sign a request: digests, codes over them with a key, and their texts. SHA-1 and MD5 are
/// here because providers ask for them.
const SIGNING: [&str; 7] = ["hmac_sha256", "hmac_sha1", "sha256", "md5", "hex", "base64", "base64url"];

/// The engine that checks and renders.
pub(crate) fn engine() -> Environment<'static> {
    let mut engine = Environment::new();
    engine.set_undefined_behavior(UndefinedBehavior::Strict);
    engine.set_fuel(Some(FUEL));
    engine.set_auto_escape_callback(|_| AutoEscape::None);
    // The engine's own would write `null` and nothing for a field that is missing.
    engine.add_filter("tojson", |value: &Value, indent: Option<Value>, args: Kwargs| {
        filters::tojson(defined(value)?, indent, args)
    });
    engine.add_filter("urlencode", |value: &Value| filters::urlencode(defined(value)?));
    add_signing(&mut engine);
    // Without it an error does not say which variable was missing.
    engine.set_debug(true);
    engine
}

/// What a template reads.
#[derive(Debug, Default)]
pub(crate) struct Used {
    /// Of the variables that it may name.
    pub(crate) variables: Vec<&'static str>,
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
    let used = Used { variables, headers, with: fields(instructions, "with") };
    if unknown.is_empty() { Ok(used) } else { Err(unknown.into_iter().collect()) }
}

/// Checks `source` as [`add`] does.
pub(super) fn check(source: &str, known: &'static [&'static str]) -> Result<Used, Vec<String>> {
    add(&mut engine(), "template", source, known)
}

/// The engine finds these only when it comes across them, which may be in a branch that is seldom taken.
fn unknown_filters(template: &Template<'_, '_>, instructions: &Instructions<'_>) -> BTreeSet<String> {
    let mut state: State<'_, '_> = template.new_state();
    let mut told = |instruction: &Instruction<'_>| match instruction {
        Instruction::ApplyFilter(filter, ..) => {
            let error = state.apply_filter(filter, &[]).err()?;
            let hint = did_you_mean(filter, FILTERS.into_iter().chain(SIGNING));
            (error.kind() == ErrorKind::UnknownFilter).then(|| format!("there is no filter `{filter}`{hint}"))
        }
        Instruction::PerformTest(test, ..) => {
            let error = state.perform_test(test, &[]).err()?;
            (error.kind() == ErrorKind::UnknownTest).then(|| format!("there is no test `{test}`"))
        }
        _ => None,
    };
    all(instructions).filter_map(|instruction| told(instruction)).collect()
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

/// `hmac_sha256(key)`, `hmac_sha1(key)`, `sha256` and `md5` give bytes; `hex`, `base64` and `base64url` make a text of
/// bytes or of another text.
fn add_signing(engine: &mut Environment<'static>) {
    engine.add_filter("hmac_sha256", |value: &Value, key: &Value| code::<Hmac<Sha256>>(value, key));
    engine.add_filter("hmac_sha1", |value: &Value, key: &Value| code::<Hmac<Sha1>>(value, key));
    engine.add_filter("sha256", |value: &Value| {
        Ok::<_, Error>(Value::from_bytes(Sha256::digest(bytes(value)?).to_vec()))
    });
    engine.add_filter("md5", |value: &Value| Ok::<_, Error>(Value::from_bytes(Md5::digest(bytes(value)?).to_vec())));
    engine.add_filter("hex", |value: &Value| Ok::<_, Error>(hex(bytes(value)?)));
    engine.add_filter("base64", |value: &Value| Ok::<_, Error>(STANDARD.encode(bytes(value)?)));
    engine.add_filter("base64url", |value: &Value| Ok::<_, Error>(URL_SAFE_NO_PAD.encode(bytes(value)?)));
}

/// Bytes in hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn code<M: Mac + KeyInit>(value: &Value, key: &Value) -> Result<Value, Error> {
    let mut mac = <M as KeyInit>::new_from_slice(bytes(key)?)
        .map_err(|_| Error::new(ErrorKind::InvalidOperation, "the key is empty"))?;
    mac.update(bytes(value)?);
    Ok(Value::from_bytes(mac.finalize().into_bytes().to_vec()))
}

/// Of a text its UTF-8. What it is stays unsaid in the error: it may be a secret.
fn bytes(value: &Value) -> Result<&[u8], Error> {
    let value = defined(value)?;
    value
        .as_str()
        .map(str::as_bytes)
        .or_else(|| value.as_bytes())
        .ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "a text is wanted; write |string before it"))
}

#[cfg(test)]
mod tests {
    use minijinja::context;

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
    fn headers_that_templates_read_are_known_by_name() {
        let used = |source: &str| add(&mut engine(), "body", source, REQUEST).unwrap().headers;
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let found = used(r#"{{ headers.Tenant }}{{ headers["X-Lang"]|default("en") }}"#);
        assert_eq!(found, Fields { names: names(&["tenant", "x-lang"]), any: false });
        for source in ["{{ headers|tojson }}", "{% for h in headers %}{% endfor %}", "{{ headers[topic] }}"] {
            assert!(used(source).any, "{source}");
        }
        assert_eq!(used("{{ topic }}"), Fields::default());
        let sliced = add(&mut engine(), "body", "{{ recipient[:3] }}", REQUEST).unwrap();
        assert_eq!(sliced.variables, ["recipient"]);
    }

    fn render(source: &str) -> Result<String, Error> {
        engine().render_str(source, context! { key => "key", text => "The quick brown fox jumps over the lazy dog" })
    }

    #[test]
    fn digests_are_those_that_the_standards_print() {
        for (source, expected) in [
            ("{{ text|hmac_sha256(key)|hex }}", "f7bc83f430538424b13298e6aa6fb143ef4d59a14946175997479dbc2d1a3cd8"),
            ("{{ text|hmac_sha1(key)|hex }}", "de7c9b85b8b78aa6bc8a7a36f70a90701c9db4d9"),
            ("{{ text|sha256|hex }}", "d7a8fbb307d7809469ca9abcb0082e4f8d5651e46d3cdb762d02d0bf37c9e592"),
            ("{{ text|md5|hex }}", "9e107d9d372bb6826bd81d3542a419d6"),
            ("{{ text|hmac_sha1(key)|base64 }}", "3nybhbi3iqa8ino29wqQcBydtNk="),
            (
                "{{ text|sha256|hex|length }} {{ 'q6'|sha256|base64url }}",
                "64 d-xnatggCsHchl9GtKbSemwI1J-IW_9QQ4sEX4vtMrA",
            ),
            ("{{ 'a'|base64 }} {{ 'a'|hmac_sha256('k'|sha256)|hex|length }}", "YQ== 64"),
        ] {
            assert_eq!(render(source).unwrap(), expected, "{source}");
        }
    }

    #[test]
    fn what_is_no_text_is_refused_and_not_repeated() {
        for source in
            ["{{ 4711|sha256|hex }}", "{{ [1]|hex }}", "{{ text|hmac_sha256(4711)|hex }}", "{{ text|hmac_sha256 }}"]
        {
            let error = reason(&render(source).unwrap_err());
            assert!(!error.contains("4711"), "{source}: {error}");
        }
    }
}
