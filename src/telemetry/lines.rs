//! How a line of the log is written: for people on a terminal, as JSON elsewhere.
//!
//! **Guarantee.** Whatever a field holds, a line stays a line, and nothing in it but our own colours is obeyed by a
//! terminal. **Limit.** Other programs that log to the same terminal do as they like.

use std::io::{self, Write};

use tracing::Subscriber;
use tracing::field::Field;
use tracing_subscriber::fmt::format::{self, FormatFields, Writer};
use tracing_subscriber::fmt::{MakeWriter, SubscriberBuilder};
use tracing_subscriber::{EnvFilter, fmt};

use crate::printable;

/// Whom the log is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reader {
    /// At a terminal.
    Person,
    /// What collects logs.
    Program,
}

/// What takes events and writes their lines.
pub(super) fn subscriber<W>(filter: EnvFilter, reader: Reader, to: W) -> Box<dyn Subscriber + Send + Sync>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let lines: SubscriberBuilder<_, _, EnvFilter> = fmt().with_env_filter(filter);
    match reader {
        Reader::Person => Box::new(lines.fmt_fields(fields()).with_writer(to).finish()),
        Reader::Program => Box::new(lines.json().flatten_event(true).with_writer(Escaping(to)).finish()),
    }
}

/// Each field on the line, without what a terminal would obey.
fn fields() -> impl for<'writer> FormatFields<'writer> {
    let one = |to: &mut Writer<'_>, field: &Field, value: &dyn std::fmt::Debug| {
        let value = format!("{value:?}");
        let shown = printable::line(&value);
        match field.name() {
            "message" => write!(to, "{shown}"),
            name => write!(to, "{name}={shown}"),
        }
    };
    use tracing_subscriber::field::MakeExt as _;
    format::debug_fn(one).delimited(" ")
}

/// JSON, with escapes where the encoder of lines leaves a character as it is.
struct Escaping<W>(W);

impl<'a, W: MakeWriter<'a>> MakeWriter<'a> for Escaping<W> {
    type Writer = Escaped<W::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        Escaped(self.0.make_writer())
    }
}

struct Escaped<W>(W);

impl<W: Write> Write for Escaped<W> {
    /// Lines come whole.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.write_all(printable::json(&String::from_utf8_lossy(line)).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Debug, Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(reader: Reader) -> String {
        let hostile = "a\u{1b}[2J\u{1b}]0;t\u{7}\r\n2026 fine\u{9b}31m\u{202e}\u{2066}\u{200f}\u{61c}";
        let log = Log::default();
        let to = log.clone();
        let subscriber = subscriber(EnvFilter::new("info"), reader, move || to.clone());
        tracing::subscriber::with_default(subscriber, || {
            let error = io::Error::other(hostile);
            tracing::warn!(topic = hostile, shown = %hostile, debug = ?hostile, %error, "it is {hostile}");
        });
        let bytes = log.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn what_a_field_holds_is_not_obeyed_by_a_terminal_and_stays_on_its_line() {
        let text = logged(Reader::Person);
        let (lines, without) = (text.lines().count(), strip_colours(&text));
        assert_eq!((lines, printable::text(&without).as_ref()), (1, without.as_str()), "{text:?}");
        assert!(without.contains("it is a\u{fffd}[2J") && without.contains("topic=") && without.contains("shown=a"));
    }

    #[test]
    fn a_line_for_programs_is_json_that_means_what_was_logged() {
        let text = logged(Reader::Program);
        assert_eq!((text.lines().count(), printable::text(&text).as_ref()), (1, text.as_str()));
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert!(line["shown"].as_str().unwrap().contains("\u{9b}31m\u{202e}"), "{line}");
    }

    /// The formatter's own: `\x1b[…m`.
    fn strip_colours(text: &str) -> String {
        let mut parts = text.split("\u{1b}[");
        let first = parts.next().unwrap_or_default().to_owned();
        first + &parts.map(|part| part.split_once('m').map_or(part, |(_, rest)| rest)).collect::<String>()
    }
}
