//! Quotes and commas in a JSON body: what is wrong with them is noticed only by the provider.
//!
//! **Limit.** Only a plain `{{ payload.text }}` or `{{ …|tojson }}` is judged; what statements and other expressions make of
//! a value is not worked out.

use crate::config::template::REQUEST;

/// Filters after which a text is still a text. Not `safe`: whoever writes it means what is there.
const TEXT_FILTERS: [&str; 9] = ["capitalize", "e", "escape", "lower", "string", "title", "trim", "upper", "urlencode"];

/// Filters whose result is a number.
const NUMBER_FILTERS: [&str; 5] = ["abs", "count", "float", "int", "length"];

/// Variables that can hold a quote.
const FREE_TEXT: [&str; 4] = ["headers", "payload", "recipient", "topic"];

/// A part of a template's source, without its delimiters.
#[derive(Debug, PartialEq, Eq)]
enum Piece<'a> {
    Text(&'a str),
    Expression(&'a str),
    Statement(&'a str),
}

/// A word of an expression.
#[derive(Debug, PartialEq, Eq)]
enum Word<'a> {
    Name(&'a str),
    Quoted,
    Sign(char),
}

/// Values that a JSON body takes without quoting them: `"text": {{ payload.text }}`.
pub(super) fn unquoted(source: &str) -> Vec<String> {
    plain_values(source)
        .into_iter()
        .filter(|(code, is_quoted)| !is_quoted && root(code) != Some("id"))
        .map(|(code, _)| {
            format!("puts {{{{ {code} }}}} into JSON as it is; write {{{{ {code}|tojson }}}}, which quotes")
        })
        .collect()
}

/// Values between quotes that a quote of their own would end: `"Hello {{ payload.name }}"`.
pub(super) fn breakable(source: &str) -> Vec<String> {
    plain_values(source)
        .into_iter()
        .filter(|(code, is_quoted)| *is_quoted && root(code).is_some_and(|root| FREE_TEXT.contains(&root)))
        .map(|(code, _)| code.to_owned())
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
            Piece::Expression(code) if is_quoted && quotes_itself(code) => {
                return Some(format!(
                    "puts {{{{ {code} }}}} between quotes, and tojson writes quotes of its own; leave those around it out"
                ));
            }
            Piece::Expression(_) if is_quoted => sample.push('0'),
            Piece::Expression(code) => sample.push_str(json_sample(code)?),
            Piece::Statement(_) => return None,
        }
    }
    let error = serde_json::from_str::<serde_json::Value>(&sample).err().filter(|_| !sample.trim().is_empty())?;
    let (text, line) = (error.to_string(), error.line());
    let what = text.split(" at line").next().unwrap_or_default();
    Some(format!("gives no JSON: {what} in line {line} of it; mend it, or say what it is with content_type"))
}

/// Each plain value of a JSON template, and whether it stands between quotes.
fn plain_values(source: &str) -> Vec<(&str, bool)> {
    let (mut is_quoted, mut found) = (false, Vec::new());
    for piece in pieces(source) {
        match piece {
            Piece::Text(text) => is_quoted = quoted_after(text, is_quoted),
            Piece::Expression(code) if is_plain(code) => found.push((code, is_quoted)),
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

/// A field as `tojson` writes it: mostly a text, in quotes.
fn quotes_itself(code: &str) -> bool {
    let is_text = root(code).is_some_and(|root| FREE_TEXT.contains(&root));
    is_text && matches!(words(code).as_slice(), [.., Word::Sign('|'), Word::Name("tojson")])
}

/// What an expression might give, if that is JSON for sure. A text may stand for a name as well.
fn json_sample(code: &str) -> Option<&'static str> {
    match words(code).as_slice() {
        [Word::Name("id")] => Some("0"),
        [.., Word::Sign('|'), Word::Name("tojson")] => Some("\"0\""),
        [.., Word::Sign('|'), Word::Name(filter)] if NUMBER_FILTERS.contains(filter) => Some("0"),
        _ => None,
    }
}

fn root(code: &str) -> Option<&str> {
    match words(code).first() {
        Some(Word::Name(name)) => Some(name),
        _ => None,
    }
}

/// A variable or a field of it, with nothing but filters of text behind.
fn is_plain(code: &str) -> bool {
    if !root(code).is_some_and(|root| REQUEST.contains(&root)) {
        return false;
    }
    let words = words(code);
    let (mut rest, mut is_filter) = (&words[1..], false);
    while let [sign, name, after @ ..] = rest {
        match (sign, name) {
            (Word::Sign('.'), Word::Name(_)) if !is_filter => {}
            (Word::Sign('|'), Word::Name(name)) if TEXT_FILTERS.contains(name) => is_filter = true,
            _ => return false,
        }
        rest = after;
    }
    rest.is_empty()
}

/// Cuts a template that the engine has accepted into its pieces; comments are left out.
fn pieces(source: &str) -> Vec<Piece<'_>> {
    let (mut rest, mut found) = (source, Vec::new());
    while let Some(at) = ["{{", "{%", "{#"].into_iter().filter_map(|tag| rest.find(tag)).min() {
        found.push(Piece::Text(&rest[..at]));
        let (open, inside) = rest[at..].split_at(2);
        let length = match open {
            "{#" => inside.find("#}"),
            "{{" => code_length(inside, "}}"),
            _ => code_length(inside, "%}"),
        };
        let length = length.unwrap_or(inside.len());
        let code = inside[..length].trim_matches(['-', '+']).trim();
        rest = inside.get(length + 2..).unwrap_or_default();
        match open {
            "{{" => found.push(Piece::Expression(code)),
            // What follows is no template until the block ends.
            "{%" if code == "raw" => {
                let end = rest.find("endraw").and_then(|end| rest[..end].rfind("{%")).unwrap_or(rest.len());
                found.push(Piece::Text(&rest[..end]));
                rest = &rest[end..];
            }
            "{%" => found.push(Piece::Statement(code)),
            _ => {}
        }
    }
    found.push(Piece::Text(rest));
    found
}

/// Where `end` stands outside of quotes and braces.
fn code_length(code: &str, end: &str) -> Option<usize> {
    let (mut quote, mut depth, mut is_escaped) = (None, 0_usize, false);
    for (at, c) in code.char_indices() {
        match (quote, c) {
            _ if is_escaped => is_escaped = false,
            (Some(_), '\\') => is_escaped = true,
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '{') => depth += 1,
            (None, _) if depth == 0 && code[at..].starts_with(end) => return Some(at),
            (None, '}') => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

fn words(code: &str) -> Vec<Word<'_>> {
    let (mut rest, mut found) = (code.trim_start(), Vec::new());
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '"' | '\'' => {
                let mut is_escaped = false;
                let closing = |(_, c): &(usize, char)| {
                    let closes = *c == first && !is_escaped;
                    is_escaped = *c == '\\' && !is_escaped;
                    closes
                };
                found.push(Word::Quoted);
                rest[1..].char_indices().find(closing).map_or(rest.len(), |(at, _)| at + 2)
            }
            c if c.is_alphanumeric() || c == '_' => {
                let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
                found.push(Word::Name(&rest[..end]));
                end
            }
            c => {
                found.push(Word::Sign(c));
                c.len_utf8()
            }
        };
        rest = rest[length..].trim_start();
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
