//! Whether a JSON body gives JSON: it is rendered with numbers, words and quotes for what a notification holds, and
//! read.
//!
//! The engine's auto-escape for JSON stays off: it would quote what templates write as it is on purpose, such as
//! `{{ "," if not loop.last }}` or `{{ payload.a|tojson if payload.a else 'null' }}`, and what stands between quotes.
//!
//! **Guarantee.** What the engine makes of a template is judged. A body is refused only for a plain `{{ payload.text
//! }}` or `{{ …|tojson }}` that breaks it, or where nothing makes it JSON. **Limit.** A body that asks more of a value
//! than to be a number, a word or a quote is not judged, nor is what stands in a loop over data.

use std::collections::BTreeSet;

use minijinja::{Environment, Value};
use serde::Deserialize as _;
use serde_json::{Value as Json, json};

use crate::config::template;

/// Filters after which a text is still a text. Not `safe`: whoever writes it means what is there.
const TEXT_FILTERS: [&str; 9] = ["capitalize", "e", "escape", "lower", "string", "title", "trim", "upper", "urlencode"];

/// Variables that can hold a quote.
const FREE_TEXT: [&str; 4] = ["headers", "payload", "recipient", "topic"];

/// A template of a JSON body that the engine has accepted.
struct Body<'a> {
    source: &'a str,
    engine: Environment<'static>,
    /// What it reads of a notification, as `payload.text`.
    fields: BTreeSet<String>,
}

/// What the provider could not read.
pub(super) fn errors(source: &str) -> Vec<String> {
    let Some(body) = Body::new(source) else { return Vec::new() };
    let mistakes: Vec<String> = body.broken_by("ab").filter_map(|field| body.mistake(field)).collect();
    if !mistakes.is_empty() || source.contains("{%") || source.contains(" if ") {
        return mistakes;
    }
    let samples = [json!(1), json!("a\"b"), json!("ab")].map(|value| body.read(|_| value.clone()));
    let [Some(Err(_)), Some(Err(_)), Some(Err(error))] = samples else { return mistakes };
    let (text, line) = (error.to_string(), error.line());
    let what = text.split(" at line").next().unwrap_or_default();
    vec![format!("gives no JSON: {what} in line {line} of it; mend it, or say what it is with content_type")]
}

/// Values between quotes that a quote of their own would end: `"Hello {{ payload.name }}"`.
pub(super) fn breakable(source: &str) -> Vec<String> {
    let Some(body) = Body::new(source) else { return Vec::new() };
    let broken = body.broken_by("a\"b").filter(|field| is_free_text(field));
    broken.filter_map(|field| body.plain(field)).map(str::to_owned).collect()
}

impl<'a> Body<'a> {
    fn new(source: &'a str) -> Option<Self> {
        let mut engine = template::engine();
        engine.add_function("nonce", |_bytes: u32| "ab");
        engine.add_template_owned("body", source.to_owned()).ok()?;
        let read = engine.get_template("body").ok()?.undeclared_variables(true);
        let fields = read.into_iter().filter(|field| field != "id" && field != "nonce").collect();
        Some(Self { source, engine, fields })
    }

    /// Renders it with this for each field, and nothing to loop over. None: it wants other values, or gives nothing.
    fn read(&self, value: impl Fn(&str) -> Json) -> Option<serde_json::Result<Json>> {
        let mut context = json!({ "id": 1 });
        for field in &self.fields {
            let at = field.split('.').fold(&mut context, |table, part| {
                if !table.is_object() {
                    *table = json!({});
                }
                &mut table[part]
            });
            *at = if self.source.contains(&format!(" in {field}")) { json!([]) } else { value(field) };
        }
        let text = self.engine.get_template("body").ok()?.render(Value::deserialize(context).ok()?).ok()?;
        (!text.trim().is_empty()).then(|| serde_json::from_str(&text))
    }

    /// The fields by which JSON is no longer JSON once they hold this.
    fn broken_by(&self, text: &str) -> impl Iterator<Item = &String> {
        let base = [json!(1), json!("ab")].into_iter().find(|base| matches!(self.read(|_| base.clone()), Some(Ok(_))));
        self.fields.iter().filter(move |field| {
            let value = |own: &str, base: &Json| if own == *field { json!(text) } else { base.clone() };
            base.as_ref().is_some_and(|base| matches!(self.read(|own| value(own, base)), Some(Err(_))))
        })
    }

    /// Each expression that begins with the field, and the filters behind it.
    fn uses(&self, field: &str) -> impl Iterator<Item = (&'a str, Vec<&'a str>)> {
        let codes = self.source.split("{{").skip(1).filter_map(|rest| rest.split("}}").next());
        codes.filter_map(move |code| {
            let code = code.trim_matches(['-', '+']).trim();
            let mut filters = code.strip_prefix(field)?.split('|').map(str::trim);
            (filters.next() == Some("")).then(|| (code, filters.collect()))
        })
    }

    /// The expression that writes the field as it is.
    fn plain(&self, field: &str) -> Option<&'a str> {
        let is_text = |filters: &[&str]| filters.iter().all(|filter| TEXT_FILTERS.contains(filter));
        self.uses(field).find(|(_, filters)| is_text(filters)).map(|(code, _)| code)
    }

    fn mistake(&self, field: &str) -> Option<String> {
        if let Some(code) = self.plain(field) {
            return Some(format!(
                "puts {{{{ {code} }}}} into JSON as it is; write {{{{ {code}|tojson }}}}, which quotes"
            ));
        }
        let (code, _) = self.uses(field).find(|(_, filters)| filters.last() == Some(&"tojson"))?;
        is_free_text(field).then(|| {
            format!(
                "puts {{{{ {code} }}}} between quotes, and tojson writes quotes of its own; leave those around it out"
            )
        })
    }
}

fn is_free_text(field: &str) -> bool {
    field.split('.').next().is_some_and(|root| FREE_TEXT.contains(&root))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_in_json_wants_its_quotes() {
        for (source, count) in [
            (r#"{"text": {{ payload.text }}}"#, 1),
            (r#"{"to": {{ recipient }}, "text": {{- payload.a.b|upper -}} }"#, 2),
            (r#"{"to": {{ recipient|tojson }}, "id": {{ id }}, "n": {{ payload.n|int }}}"#, 0),
            (r#"{"say": "\" {{ payload.text }}"}"#, 0),
            (
                r#"{"a": {{ payload.a|tojson if payload.a else 'null' }}, "b": [{% for x in payload.b %}{{ x }}{% endfor %}]}"#,
                0,
            ),
            (r#"{% raw %}{"text": {{ payload.text }}}{% endraw %}{{ payload.json|safe }}"#, 0),
        ] {
            assert_eq!(errors(source).len(), count, "{source}: {:?}", errors(source));
        }
        let said = &errors(r#"{"text": {{ payload.text }}}"#)[0];
        assert_eq!(said, "puts {{ payload.text }} into JSON as it is; write {{ payload.text|tojson }}, which quotes");
    }

    #[test]
    fn a_body_that_can_be_no_json_is_seen_without_a_notification() {
        for (source, said) in [
            (r#"{"text": "{{ payload.text|tojson }}"}"#, Some("between quotes, and tojson")),
            (r#"{"a": {{ id }}, "b": {{ payload.b|default("")|tojson }},}"#, Some("trailing comma in line 1")),
            ("{\n\"a\": {{ topic|tojson }}\n\"b\": 1}", Some("in line 3")),
            ("hello", Some("gives no JSON")),
            (r#"{"a": {{ id }}, "n": "{{ id|tojson }}", "s": "{{ topic }} \" {{ payload.a if payload.b }}"}"#, None),
            (r#"[{% for x in payload.b %}{{ x|tojson }}{{ "," if not loop.last }}{% endfor %}]"#, None),
            (r#"{"a": {{ payload.a|tojson if payload.a else 'null' }},}"#, None),
            (r#"{"n": {{ payload.n|default(0) }}, "m": {{ payload.m or 0 }}, "o": {{ payload.n ~ payload.m }}}"#, None),
            ("{{ payload|tojson }}", None),
            (r#"{ {{ topic|tojson }}: {{ payload.n|int }} }"#, None),
            (" ", None),
        ] {
            let found = errors(source);
            match said {
                Some(said) => assert!(found.len() == 1 && found[0].contains(said), "{source}: {found:?}"),
                None => assert_eq!(found, [""; 0], "{source}"),
            }
        }
    }

    #[test]
    fn a_text_between_quotes_may_end_them() {
        assert_eq!(
            breakable(r#"{"a": "Hi {{ payload.name }}", "b": "{{ id }}", "c": {{ topic|tojson }}}"#),
            ["payload.name"]
        );
    }
}
