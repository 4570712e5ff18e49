//! Colours, on a terminal, unless `NO_COLOR` is set.

use std::io::IsTerminal;

use crate::printable;

/// The colours that [`Paint::with`] is asked for.
const CODES: [&str; 5] = ["0", "1", "1;31", "32", "33"];

/// The levels and their colours.
const LEVELS: [(&str, &str); 3] = [("ok", "32"), ("warn", "33"), ("critical", "1;31")];

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

    /// The text with the levels that begin its lines in their colours.
    pub(super) fn levels(self, text: &str) -> String {
        let line = |line: &str| {
            let level = line.split([' ', '\n']).next().unwrap_or_default();
            let code = LEVELS.iter().find(|(own, _)| *own == level).map(|(_, code)| *code);
            code.map_or_else(|| line.to_owned(), |code| self.with(code, level) + &line[level.len()..])
        };
        text.split_inclusive('\n').map(line).collect()
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
        let ours = Paint::Colors.levels("critical  workers\nno critical\nok\n");
        assert_eq!(ours, "\x1b[1;31mcritical\x1b[0m  workers\nno critical\n\x1b[32mok\x1b[0m\n");
        assert_eq!(keep_only_colors(&ours), ours);
        assert_eq!(keep_only_colors("a\x1b[2Jb\x1b]0;t\x07\x1b[5mc\x1b["), "a�[2Jb�]0;t��[5mc�[");
    }
}
