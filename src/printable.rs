//! What others wrote, made fit to be shown.
//!
//! A topic, a recipient or a provider's answer may hold escape sequences, which a terminal obeys, and marks that turn
//! the direction of what is read. Whoever writes a row would then write on the screen of whoever looks at it.
//!
//! **Guarantee.** What comes out of here holds no control character but the newline that [`text`] keeps, and no mark of
//! direction. **Limit.** Letters that merely look like others stay.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Stands for a character that is not shown.
const HIDDEN: char = '\u{fffd}';

/// Control characters (C0, DEL, C1), separators of lines, and marks that turn the direction of what follows.
fn is_unfit(c: char) -> bool {
    let is_mark = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || is_mark
}

fn replace(given: &str, replaced: fn(char) -> Option<char>) -> Cow<'_, str> {
    match given.chars().any(|c| replaced(c).is_some()) {
        true => given.chars().map(|c| replaced(c).unwrap_or(c)).collect(),
        false => Cow::Borrowed(given),
    }
}

/// Text of several lines.
pub fn text(given: &str) -> Cow<'_, str> {
    replace(given, |c| match c {
        '\n' => None,
        '\t' => Some(' '),
        _ => is_unfit(c).then_some(HIDDEN),
    })
}

/// The same on one line: a value that ends a line could begin one that looks like ours.
pub fn line(given: &str) -> Cow<'_, str> {
    replace(given, |c| match c {
        '\n' | '\t' => Some(' '),
        _ => is_unfit(c).then_some(HIDDEN),
    })
}

/// JSON stays JSON and means the same: such characters stand in its strings alone, and there are written as escapes.
pub fn json(given: &str) -> Cow<'_, str> {
    let is_escaped = |c: char| c != '\n' && is_unfit(c);
    if !given.chars().any(is_escaped) {
        return Cow::Borrowed(given);
    }
    let mut escaped = String::with_capacity(given.len() + 16);
    for c in given.chars() {
        // All of them are of the basic plane; a String takes whatever is written to it.
        match is_escaped(c) {
            true => drop(write!(escaped, "\\u{:04x}", u32::from(c))),
            false => escaped.push(c),
        }
    }
    Cow::Owned(escaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNFIT: &str = "\u{1}\u{7}\u{8}\r\u{1b}\u{7f}\u{80}\u{9b}\u{9f}\u{61c}\u{200e}\u{200f}\u{2028}\u{202a}\u{202e}\u{2066}\u{2069}";

    #[test]
    fn what_a_terminal_would_obey_is_not_shown_and_letters_of_any_script_are() {
        for c in UNFIT.chars() {
            assert_eq!(text(&format!("a{c}b")), "a\u{fffd}b", "{c:?}");
            assert_eq!(line(&format!("a{c}b")), "a\u{fffd}b", "{c:?}");
        }
        let fit = "ascii, 주문, سلام, Grüße, 👩\u{200d}💻 \u{feff}";
        assert!(matches!((text(fit), line(fit), json(fit)), (Cow::Borrowed(_), Cow::Borrowed(_), Cow::Borrowed(_))));
        assert_eq!((text("a\nb\tc"), line("a\nb\tc")), ("a\nb c".into(), "a b c".into()));
    }

    #[test]
    fn json_means_the_same_and_holds_escapes_instead() {
        let value = serde_json::json!({ UNFIT: [UNFIT, 1] });
        for written in [value.to_string(), format!("{value:#}")] {
            let shown = json(&written);
            assert!(!shown.chars().any(|c| c != '\n' && is_unfit(c)), "{shown:?}");
            assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
        }
    }
}
