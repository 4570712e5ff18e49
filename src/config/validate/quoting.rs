//! Quotes and commas in a JSON body: what is wrong with them is noticed only by the provider.
//!
//! **Guarantee.** A template is cut as the engine cuts it: with its own tokens. **Limit.** Only a plain `{{
//! payload.text }}` or `{{ …|tojson }}` is judged; what statements and other expressions make of a value is not worked
//! out.

use minijinja::machinery::{Token, tokenize};
use minijinja::syntax::SyntaxConfig;

use crate::config::template::REQUEST;

/// Filters after which a text is still a text. Not `safe`: whoever writes it means what is there.
const TEXT_FILTERS: [&str; 9] = ["capitalize", "e", "escape", "lower", "string", "title", "trim", "upper", "urlencode"];

/// Filters whose result is a number.
const NUMBER_FILTERS: [&str; 5] = ["abs", "count", "float", "int", "length"];

/// Variables that can hold a quote.
const FREE_TEXT: [&str; 4] = ["headers", "payload", "recipient", "topic"];

/// A part of a template; comments are left out.
enum Piece<'a> {
    Text(&'a str),
    Expression(Expression<'a>),
    Statement,
}

/// What stands between `{{` and `}}`.
struct Expression<'a> {
    code: &'a str,
    tokens: Vec<Token<'a>>,
}

/// Values that a JSON body takes without quoting them: `"text": {{ payload.text }}`.
pub(super) fn unquoted(source: &str) -> Vec<String> {
    plain_values(source)
        .into_iter()
        .filter(|(expression, is_quoted)| !is_quoted && expression.root() != Some("id"))
        .map(|(Expression { code, .. }, _)| {
            format!("puts {{{{ {code} }}}} into JSON as it is; write {{{{ {code}|tojson }}}}, which quotes")
        })
        .collect()
}

/// Values between quotes that a quote of their own would end: `"Hello {{ payload.name }}"`.
pub(super) fn breakable(source: &str) -> Vec<String> {
    plain_values(source)
        .into_iter()
        .filter(|(expression, is_quoted)| *is_quoted && expression.is_free_text())
        .map(|(expression, _)| expression.code.to_owned())
        .collect()
}

/// Why the body would be no JSON, with something in the place of each value.
pub(super) fn no_json(source: &str) -> Option<String> {
    let (mut sample, mut is_quoted) = (String::new(), false);
    for piece in pieces(source) {
        match piece {
            Piece::Text(text) => {
                is_quoted = quoted_after(text, is_quoted);
                sample.push_str(text);
            }
            Piece::Expression(expression) if is_quoted && expression.quotes_itself() => {
                return Some(format!(
                    "puts {{{{ {} }}}} between quotes, and tojson writes quotes of its own; leave those around it out",
                    expression.code
                ));
            }
            Piece::Expression(_) if is_quoted => sample.push('0'),
            Piece::Expression(expression) => sample.push_str(expression.json_sample()?),
            Piece::Statement => return None,
        }
    }
    let error = serde_json::from_str::<serde_json::Value>(&sample).err().filter(|_| !sample.trim().is_empty())?;
    let (text, line) = (error.to_string(), error.line());
    let what = text.split(" at line").next().unwrap_or_default();
    Some(format!("gives no JSON: {what} in line {line} of it; mend it, or say what it is with content_type"))
}

/// Each plain value of a JSON template, and whether it stands between quotes.
fn plain_values(source: &str) -> Vec<(Expression<'_>, bool)> {
    let (mut is_quoted, mut found) = (false, Vec::new());
    for piece in pieces(source) {
        match piece {
            Piece::Text(text) => is_quoted = quoted_after(text, is_quoted),
            Piece::Expression(expression) if expression.is_plain() => found.push((expression, is_quoted)),
            _ => {}
        }
    }
    found
}

/// Whether a JSON string is open after `text`.
fn quoted_after(text: &str, before: bool) -> bool {
    let (mut is_quoted, mut chars) = (before, text.chars());
    while let Some(c) = chars.next() {
        match c {
            '\\' => drop(chars.next()),
            '"' => is_quoted = !is_quoted,
            _ => {}
        }
    }
    is_quoted
}

impl Expression<'_> {
    fn root(&self) -> Option<&str> {
        match self.tokens.first() {
            Some(Token::Ident(name)) => Some(name),
            _ => None,
        }
    }

    fn is_free_text(&self) -> bool {
        self.root().is_some_and(|root| FREE_TEXT.contains(&root))
    }

    /// A field as `tojson` writes it: mostly a text, in quotes.
    fn quotes_itself(&self) -> bool {
        self.is_free_text() && matches!(self.tokens.as_slice(), [.., Token::Pipe, Token::Ident("tojson")])
    }

    /// What it might give, if that is JSON for sure. A text may stand for a name as well.
    fn json_sample(&self) -> Option<&'static str> {
        match self.tokens.as_slice() {
            [Token::Ident("id")] => Some("0"),
            [.., Token::Pipe, Token::Ident("tojson")] => Some("\"0\""),
            [.., Token::Pipe, Token::Ident(filter)] if NUMBER_FILTERS.contains(filter) => Some("0"),
            _ => None,
        }
    }

    /// A variable or a field of it, with nothing but filters of text behind.
    fn is_plain(&self) -> bool {
        let [Token::Ident(root), rest @ ..] = self.tokens.as_slice() else { return false };
        let (pairs, odd) = rest.as_chunks();
        let fields = pairs.iter().take_while(|pair| matches!(pair, [Token::Dot, Token::Ident(_)])).count();
        let is_text_filter =
            |pair: &[Token<'_>; 2]| matches!(pair, [Token::Pipe, Token::Ident(name)] if TEXT_FILTERS.contains(name));
        REQUEST.contains(root) && odd.is_empty() && pairs[fields..].iter().all(is_text_filter)
    }
}

/// Cuts a template that the engine has accepted into its pieces.
fn pieces(source: &str) -> Vec<Piece<'_>> {
    let (mut found, mut tokens, mut from) = (Vec::new(), Vec::new(), 0);
    for (token, span) in tokenize(source, false, SyntaxConfig::default()).map_while(Result::ok) {
        match token {
            Token::TemplateData(text) => found.push(Piece::Text(text)),
            Token::VariableStart => from = span.end_offset as usize,
            Token::VariableEnd => {
                let code = source[from..span.start_offset as usize].trim();
                found.push(Piece::Expression(Expression { code, tokens: std::mem::take(&mut tokens) }));
            }
            Token::BlockStart => found.push(Piece::Statement),
            Token::BlockEnd => tokens.clear(),
            token => tokens.push(token),
        }
    }
    found
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
            assert_eq!(unquoted(source).len(), count, "{source}: {:?}", unquoted(source));
        }
        let said = &unquoted(r#"{"text": {{ payload.text }}}"#)[0];
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
            ("{{ payload|tojson }}", None),
            (r#"{ {{ topic|tojson }}: {{ payload.n|int }} }"#, None),
            (" ", None),
        ] {
            let found = no_json(source);
            match said {
                Some(said) => assert!(found.as_ref().is_some_and(|what| what.contains(said)), "{source}: {found:?}"),
                None => assert_eq!(found, None, "{source}"),
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
