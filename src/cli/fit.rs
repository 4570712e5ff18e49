//! Lays out what people read, by comfy-table: as wide as the terminal, each text broken within its column. In a pipe
//! each row is one line, for whoever searches it; in a window that must not scroll it is one line that fits.

use comfy_table::{ContentArrangement, Row, Table, presets};

/// The window that a text has to fit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    width: u16,
    pub(super) height: usize,
}

impl Window {
    /// The terminal on stdout, if there is one. Its last line and column stay free, so that nothing scrolls or wraps.
    pub(super) fn of_stdout() -> Option<Window> {
        let (terminal_size::Width(width), terminal_size::Height(height)) =
            terminal_size::terminal_size_of(std::io::stdout())?;
        Some(Window { width: width.saturating_sub(1).max(1), height: usize::from(height).saturating_sub(1).max(1) })
    }

    /// As wide as this, wherever it is read.
    pub(super) fn wide(width: u16) -> Window {
        Window { width, height: usize::MAX }
    }
}

/// A table without lines, of one line a row if it has to fit a window.
pub(super) fn table<T: Into<Row>>(rows: impl IntoIterator<Item = T>, window: Option<Window>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    if let Some(Window { width, .. }) = window {
        table.set_width(width);
    }
    for row in rows {
        let mut row: Row = row.into();
        if window.is_some() {
            row.max_height(1);
        }
        table.add_row(row);
    }
    table
}

/// Rows of a text behind its leads: what does not fit stands below its beginning.
pub(super) fn hang<const N: usize>(rows: impl IntoIterator<Item = [String; N]>, window: Option<Window>) -> String {
    let mut table = table(rows, window);
    table.column_iter_mut().for_each(|column| drop(column.set_padding((0, 1))));
    if table.is_empty() { String::new() } else { table.trim_fmt() + "\n" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_in_a_window_and_whole_elsewhere() {
        let row = || [["warn".to_owned(), "안녕하세요 안녕하세요".to_owned()]];
        assert_eq!(hang(row(), None), "warn 안녕하세요 안녕하세요\n");
        assert_eq!(hang(row(), Some(Window { width: 17, height: 9 })), "warn 안녕하세요…\n");
    }
}
