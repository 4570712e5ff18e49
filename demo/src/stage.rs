//! What the viewer sees: a bar on a terminal, plain lines elsewhere, and tables.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{Cell, CellAlignment, ContentArrangement, Table};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio_postgres::{Client, SimpleQueryMessage};

/// Between plain lines of progress.
const LINE_EVERY: Duration = Duration::from_secs(2);
const BAR: &str = "  {bar:36.green/black.bright} {percent:>3}%  {msg}";

/// Where the demo plays.
#[derive(Debug)]
pub(super) struct Stage {
    bar: Option<ProgressBar>,
    began: Instant,
    line_at: Instant,
    is_terminal: bool,
}

impl Stage {
    /// Looks at where stdout leads.
    pub(super) fn new() -> Stage {
        let now = Instant::now();
        Stage { bar: None, began: now, line_at: now, is_terminal: std::io::stdout().is_terminal() }
    }

    /// One line of text.
    pub(super) fn say(&self, text: &str) -> Result<()> {
        match &self.bar {
            Some(bar) => {
                bar.println(text);
                Ok(())
            }
            None => print(text),
        }
    }

    /// A heading.
    pub(super) fn heading(&self, text: &str) -> Result<()> {
        self.say(&format!("\n{}", self.strong(text)))
    }

    /// Bold on a terminal.
    pub(super) fn strong(&self, text: &str) -> String {
        if self.is_terminal { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Something happens, so many seconds into the play.
    pub(super) fn event(&self, text: &str) -> Result<()> {
        self.say(&format!("  {:>5.1} s  {text}", self.began.elapsed().as_secs_f64()))
    }

    /// The play begins: from now on there is progress towards `total`.
    pub(super) fn begin(&mut self, total: usize) {
        self.began = Instant::now();
        self.line_at = self.began;
        if self.is_terminal {
            let style = ProgressStyle::with_template(BAR).unwrap_or_else(|_| ProgressStyle::default_bar());
            let bar = ProgressBar::with_draw_target(Some(total as u64), ProgressDrawTarget::stdout());
            bar.set_style(style.progress_chars("━━╌"));
            self.bar = Some(bar);
        }
    }

    /// How far it is.
    pub(super) fn progress(&mut self, committed: usize, delivered: usize, waiting: i64) -> Result<()> {
        let text = format!("committed {} · delivered {} · open {}", count(committed), count(delivered), count(waiting));
        if let Some(bar) = &self.bar {
            bar.set_position(delivered as u64);
            bar.set_message(text);
        } else if self.line_at.elapsed() >= LINE_EVERY {
            self.line_at = Instant::now();
            self.event(&text)?;
        }
        Ok(())
    }

    /// The play is over.
    pub(super) fn end(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish();
        }
    }

    /// Runs a statement and shows its rows under a title.
    pub(super) async fn show(&self, client: &Client, title: &str, sql: &str) -> Result<()> {
        let table = table(client, sql).await?;
        self.heading(title)?;
        self.say(&table)
    }
}

/// One line on stdout; a reader that has seen enough (`| head`) is no error.
pub(super) fn print(text: &str) -> Result<()> {
    match writeln!(std::io::stdout(), "{text}") {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error).context("cannot write the output"),
        _ => Ok(()),
    }
}

/// A statement's rows as a table, or a note that there are none.
pub(super) async fn table(client: &Client, sql: &str) -> Result<String> {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic);
    for message in client.simple_query(sql).await? {
        match message {
            SimpleQueryMessage::RowDescription(columns) => {
                table.set_header(columns.iter().map(|column| column.name().to_owned()));
            }
            SimpleQueryMessage::Row(row) => {
                table.add_row((0..row.len()).map(|at| cell(row.get(at).unwrap_or_default())));
            }
            _ => {}
        }
    }
    Ok(if table.row_count() == 0 { "  (no rows)".to_owned() } else { table.to_string() })
}

/// Numbers stand to the right.
fn cell(text: &str) -> Cell {
    let alignment = if text.parse::<f64>().is_ok() { CellAlignment::Right } else { CellAlignment::Left };
    Cell::new(text).set_alignment(alignment)
}

/// A number that can be read: 12,345.
pub(super) fn count(number: impl TryInto<u64>) -> String {
    let digits = number.try_into().map_or_else(|_| "?".to_owned(), |number| number.to_string());
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn numbers_are_grouped_by_thousands() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (12_345, "12,345"), (1_234_567, "1,234,567")] {
            assert_eq!(super::count(number), text);
        }
    }
}
