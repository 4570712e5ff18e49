//! Fits several tables into a window: narrows columns, leaves out rows and lesser tables, and says what it left out.

use serde_json::Value;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::view::{Column, Show, shown};

/// A column of text is not made narrower than this.
const TEXT_WIDTH_MIN: usize = 8;
/// What is broken into lines has this much room at least, however narrow the window.
const HANGING_WIDTH_MIN: usize = 24;
/// A table keeps its header and one row.
const LINES_MIN: usize = 2;

/// The window that the tables have to fit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    pub(super) width: usize,
    pub(super) height: usize,
}

impl Window {
    /// The terminal on stdout, if there is one. Its last line and column stay free, so that nothing scrolls or wraps.
    pub(super) fn of_stdout() -> Option<Window> {
        let (terminal_size::Width(width), terminal_size::Height(height)) =
            terminal_size::terminal_size_of(std::io::stdout())?;
        let less = |n: u16| usize::from(n).saturating_sub(1).max(1);
        Some(Window { width: less(width), height: less(height) })
    }
}

/// A titled part of the output.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) title: String,
    /// A table's header and rows, or one line of text.
    pub(super) lines: Vec<String>,
    /// The highest goes first when there is no room.
    pub(super) dispensable: usize,
}

/// The blocks as text that fits.
pub(super) fn fit(mut blocks: Vec<Block>, window: Window) -> String {
    let mut left_out: Vec<String> = Vec::new();
    let mut hidden = vec![0_usize; blocks.len()];
    let height = |blocks: &[Block], hidden: &[usize], left_out: &[String]| {
        let more = hidden.iter().filter(|rows| **rows > 0).count() + usize::from(!left_out.is_empty());
        blocks.iter().map(|block| block.lines.len() + 1).sum::<usize>() + more
    };
    let gaps = blocks.len().saturating_sub(1);
    let gap = if height(&blocks, &hidden, &left_out) + gaps <= window.height { "\n" } else { "" };
    while height(&blocks, &hidden, &left_out) > window.height && !blocks.is_empty() {
        // The longest table gives a row; once all are at their shortest, the least important one goes.
        let longest = (0..blocks.len()).filter(|n| blocks[*n].lines.len() > LINES_MIN);
        if let Some(n) = longest.max_by_key(|n| blocks[*n].lines.len()) {
            blocks[n].lines.pop();
            hidden[n] += 1;
        } else if let Some(n) = (0..blocks.len()).max_by_key(|n| blocks[*n].dispensable) {
            left_out.push(blocks.remove(n).title);
            hidden.remove(n);
        }
    }
    let mut parts: Vec<String> = Vec::new();
    for (block, hidden) in blocks.iter().zip(hidden) {
        let mut lines = vec![block.title.clone()];
        lines.extend(block.lines.iter().cloned());
        if hidden > 0 {
            lines.push(format!("  … {hidden} more"));
        }
        parts.push(lines.iter().map(|line| cut(line, window.width) + "\n").collect());
    }
    if !left_out.is_empty() {
        parts.push(cut(&format!("… a higher window also shows {}", left_out.join("; ")), window.width) + "\n");
    }
    parts.join(gap)
}

/// A table whose columns of text give way until it is at most `width` wide; header first.
pub(super) fn table(rows: &[Value], columns: &[Column], width: usize) -> Vec<String> {
    let mut cells: Vec<Vec<String>> = vec![columns.iter().map(|Column(_, title, _)| (*title).to_owned()).collect()];
    cells.extend(
        rows.iter().map(|row| columns.iter().map(|Column(field, _, show)| shown(&row[*field], *show)).collect()),
    );
    let mut widths: Vec<usize> =
        (0..columns.len()).map(|n| cells.iter().map(|row| row[n].width()).max().unwrap_or(0)).collect();
    let is_text = |n: &usize| matches!(columns[*n], Column(_, _, Show::Text));
    // Each column has two spaces before it.
    while widths.iter().sum::<usize>() + 2 * columns.len() > width {
        let widest =
            (0..columns.len()).filter(is_text).filter(|n| widths[*n] > TEXT_WIDTH_MIN).max_by_key(|n| widths[*n]);
        let Some(n) = widest else { break };
        widths[n] -= 1;
    }
    let line = |row: &Vec<String>| {
        let padded = row.iter().enumerate().map(|(n, cell)| {
            let cell = cut(cell, widths[n]);
            let space = " ".repeat(widths[n] - cell.width());
            if is_text(&n) || matches!(columns[n], Column(_, _, Show::Time)) { cell + &space } else { space + &cell }
        });
        format!("  {}", padded.collect::<Vec<_>>().join("  ")).trim_end().to_owned()
    };
    cells.iter().map(line).collect()
}

/// A line in at most `width` columns; escape sequences take none.
pub(super) fn cut(line: &str, width: usize) -> String {
    if columns(line).map(|(_, columns)| columns).sum::<usize>() <= width {
        return line.to_owned();
    }
    let mut used = 0;
    let fits = |(_, columns): &(char, usize)| {
        used += columns;
        // One is the ellipsis's.
        used < width
    };
    let kept: String = columns(line).take_while(fits).map(|(c, _)| c).collect();
    let reset = if kept.contains('\x1b') { "\x1b[0m" } else { "" };
    format!("{kept}…{reset}")
}

/// A text behind its lead. In a window it is broken between words, and what follows stands below its beginning;
/// elsewhere it stays one line, for whoever searches it.
pub(super) fn hang(lead: &str, text: &str, window: Option<Window>) -> String {
    let Some(Window { width, .. }) = window else { return format!("{lead}{text}\n") };
    let indent: usize = columns(lead).map(|(_, columns)| columns).sum();
    let width = width.max(indent + HANGING_WIDTH_MIN);
    let (mut lines, mut used) = (lead.to_owned(), indent);
    for (n, word) in text.split(' ').enumerate() {
        let fits = used + 1 + word.width() <= width;
        if n > 0 && fits {
            lines.push(' ');
            used += 1;
        } else if n > 0 {
            lines.push_str(&format!("\n{:indent$}", ""));
            used = indent;
        }
        lines.push_str(word);
        used += word.width();
    }
    lines + "\n"
}

/// Each character and the columns that it takes.
fn columns(line: &str) -> impl Iterator<Item = (char, usize)> {
    let mut is_sequence = false;
    line.chars().map(move |c| {
        is_sequence |= c == '\x1b';
        let columns = if is_sequence { 0 } else { c.width().unwrap_or(0) };
        is_sequence &= c != 'm';
        (c, columns)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn block(title: &str, lines: usize, dispensable: usize) -> Block {
        let lines = (0..lines).map(|n| format!("{title} {n}")).collect();
        Block { title: title.to_owned(), lines, dispensable }
    }

    #[test]
    fn lines_are_cut_by_the_columns_they_take() {
        assert_eq!(cut("abcdef", 6), "abcdef");
        assert_eq!(cut("abcdef", 5), "abcd…");
        assert_eq!(cut("안녕하세요", 10), "안녕하세요");
        assert_eq!(cut("안녕하세요", 8), "안녕하…");
        assert_eq!(cut("\x1b[1mabc\x1b[0m", 3), "\x1b[1mabc\x1b[0m");
        assert_eq!(cut("\x1b[1mabcdef\x1b[0m", 3), "\x1b[1mab…\x1b[0m");
    }

    #[test]
    fn a_text_is_broken_between_words_and_hangs_below_its_beginning() {
        let window = |width| Some(Window { width, height: 24 });
        assert_eq!(hang("warn  ", "one two  three", None), "warn  one two  three\n");
        assert_eq!(hang("warn  ", "one two  three", window(40)), "warn  one two  three\n");
        let text = "a text that takes more than one line";
        assert_eq!(
            hang("\x1b[1mwarn\x1b[0m  ", text, window(30)),
            "\x1b[1mwarn\x1b[0m  a text that takes more\n      than one line\n"
        );
        assert_eq!(
            hang("warn  ", text, window(5)),
            "warn  a text that takes more\n      than one line\n",
            "room to read"
        );
        assert_eq!(hang("", "안녕하세요 안녕하세요 안녕하세요", window(24)), "안녕하세요 안녕하세요\n안녕하세요\n");
    }

    #[test]
    fn text_gives_way_to_numbers() {
        let columns = [Column("host", "HOST", Show::Text), Column("n", "COUNT", Show::Number)];
        let rows = [json!({"host": "a-host-with-a-long-name", "n": 123_456})];
        assert_eq!(table(&rows, &columns, 24), ["  HOST             COUNT", "  a-host-with-a…  123456"]);
    }

    #[test]
    fn rows_go_before_tables_and_what_went_is_said() {
        let window = |height| Window { width: 80, height };
        let blocks = || vec![block("A", 2, 0), block("B", 9, 2), block("C", 2, 1)];
        assert_eq!(fit(blocks(), window(18)).lines().count(), 18, "with a line between");
        assert_eq!(fit(blocks(), window(17)).lines().count(), 16, "without");
        let short = fit(blocks(), window(12));
        assert_eq!(short.lines().count(), 12);
        assert!(short.contains("B 3\n  … 5 more\nC\n"), "{short}");
        let shorter = fit(blocks(), window(8));
        assert_eq!(shorter, "A\nA 0\nA 1\nC\nC 0\nC 1\n… a higher window also shows B\n");
    }
}
