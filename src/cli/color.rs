//! Colours, on a terminal, unless `NO_COLOR` is set.

use std::io::IsTerminal;

use crate::printable;

/// The colours that [`Paint::with`] is asked for.
const CODES: [&str; 6] = ["0", "1", "1;31", "32", "33", "36"];

/// How well something is, as in the view `health`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Ok,
    Warn,
    Critical,
}

impl Level {
    /// Anything but `ok` and `warn` is critical.
    pub(super) fn parse(name: &str) -> Level {
        match name {
            "ok" => Level::Ok,
            "warn" => Level::Warn,
            _ => Level::Critical,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Level::Ok => "ok",
            Level::Warn => "warn",
            Level::Critical => "critical",
        }
    }

    /// Its name in eight columns, coloured if `paint` says so.
    pub(super) fn show(self, paint: Paint) -> String {
        let code = match self {
            Level::Ok => "32",
            Level::Warn => "33",
            Level::Critical => "1;31",
        };
        paint.with(code, &format!("{:8}", self.name()))
    }
}

/// Whether to colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Paint {
    Colors,
    Plain,
}

impl Paint {
    /// Colours on a terminal, unless `NO_COLOR` is set.
    pub(super) fn for_stdout() -> Paint {
        let is_refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        if std::io::stdout().is_terminal() && !is_refused { Paint::Colors } else { Paint::Plain }
    }

    /// The text between an escape sequence and its end.
    pub(super) fn with(self, code: &str, text: &str) -> String {
        match self {
            Paint::Colors => format!("\x1b[{code}m{text}\x1b[0m"),
            Paint::Plain => text.to_owned(),
        }
    }
}

/// The text with our colours and no other control character but newlines.
pub(super) fn keep_only_colors(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let mut kept = parts.next().map(printable::text).unwrap_or_default().into_owned();
    for part in parts {
        let color = CODES.iter().find_map(|code| Some((code, part.strip_prefix(code)?.strip_prefix('m')?)));
        match color {
            Some((code, rest)) => kept.extend(["\x1b[", *code, "m", &*printable::text(rest)]),
            None => kept.extend([&*printable::text("\x1b["), &*printable::text(part)]),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_colours_are_left() {
        let ours = format!("{}\n{}", Level::Critical.show(Paint::Colors), Paint::Colors.with("36", "→"));
        assert_eq!(keep_only_colors(&ours), ours);
        assert_eq!(keep_only_colors("a\x1b[2Jb\x1b]0;t\x07\x1b[5mc\x1b["), "a�[2Jb�]0;t��[5mc�[");
    }
}
