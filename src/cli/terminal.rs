//! All that a command writes to stdout.
//!
//! **Guarantee.** Whatever a row holds, nothing that a terminal obeys is written but our own colours and the watch's
//! moves; JSON is written with escapes and means the same. A reader that has seen enough (`| head`) is no error.
//! **Limit.** `psql` prints what rows hold.

use std::io::Write;

use crate::printable;

use super::color::{self, Paint};
use super::{Exit, Failure};

/// Prints text for people. Values of rows come by `view`, which makes them one line each; this is the net below.
pub(super) fn print(text: &str) -> Result<(), Failure> {
    write(&shown(text))
}

/// Prints JSON, already written.
pub(super) fn print_json(text: &str) -> Result<(), Failure> {
    write(&printable::json(text))
}

/// Begins a screen that is drawn again and again.
pub(super) fn clear() -> Result<(), Failure> {
    write("\x1b[2J")
}

/// Draws over the screen from the top, each line to its end, then whatever was below: nothing flickers.
pub(super) fn redraw(text: &str) -> Result<(), Failure> {
    write(&format!("\x1b[H{}\x1b[J", shown(text).replace('\n', "\x1b[K\n")))
}

fn shown(text: &str) -> String {
    match Paint::for_stdout() {
        Paint::Colors => color::keep_only_colors(text),
        Paint::Plain => printable::text(text).into_owned(),
    }
}

fn write(text: &str) -> Result<(), Failure> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::new(Exit::Runtime, anyhow::Error::new(error).context("cannot write the output")))
        }
        _ => Ok(()),
    }
}
