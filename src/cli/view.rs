//! Reading the operators' views and showing them as compact tables.

use anyhow::Context;
use comfy_table::CellAlignment;
use serde_json::Value;
use tokio_postgres::Row;

use super::Failure;
use super::fit::{self, Window};
use crate::printable;
use crate::store::command::{Parameters, Session};

/// Longer texts are cut in tables; `--json` has them whole.
const TEXT_CHARS_MAX: usize = 72;

/// One column of a table: which field of the row, under which title, shown how.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column(pub(super) &'static str, pub(super) &'static str, pub(super) Show);

/// How a value is shown to people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Show {
    Text,
    /// To the right, for comparing.
    Number,
    /// A point in time, to the second.
    Time,
    /// A span of time, to the second.
    Span,
}

/// The rows of a query, each as a JSON object.
pub(super) async fn read(session: &Session, sql: &str, params: Parameters<'_>) -> Result<Vec<Value>, Failure> {
    let sql = format!("SELECT row_to_json(x)::text FROM ({sql}) x");
    let rows = session.query(&sql, params).await.map_err(explain)?;
    let parse = |row: &Row| serde_json::from_str(row.try_get(0)?).context("Postgres sent JSON that is none");
    Ok(rows.iter().map(parse).collect::<Result<Vec<Value>, _>>()?)
}

/// The single row of a query.
pub(super) async fn one(session: &Session, sql: &str, params: Parameters<'_>) -> Result<Row, Failure> {
    let row = session.query(sql, params).await.map_err(explain)?.pop();
    Ok(row.context("Postgres answered with no row")?)
}

/// What the server said, and what to do if the schema or the rights are missing.
pub(super) fn explain(error: tokio_postgres::Error) -> Failure {
    let Some(db) = error.as_db_error() else {
        return Failure::new(super::Exit::Unavailable, anyhow::Error::new(error).context("Postgres"));
    };
    let hint = match db.code().code() {
        "42P01" | "3F000" | "42883" => "; the schema is missing or older than this binary: run `outboxd migrate`",
        "42501" => {
            "; ask for: GRANT outboxd_operator TO your login (outboxd_service, if it is the one that outboxd runs as)"
        }
        _ => "",
    };
    let said = db.hint().map_or_else(String::new, |hint| format!("; {hint}"));
    anyhow::anyhow!("{}{hint}", printable::line(&format!("{}{said}", db.message()))).into()
}

/// A table of the rows, or `nothing` if there are none.
pub(super) fn table(rows: &[Value], columns: &[Column], nothing: &str) -> String {
    table_in(None, rows, columns, nothing)
}

/// The same; in a window each row is one line.
pub(super) fn table_in(window: Option<Window>, rows: &[Value], columns: &[Column], nothing: &str) -> String {
    if rows.is_empty() {
        return fit::hang([[format!("  {nothing}")]], window);
    }
    let titles = columns.iter().map(|Column(_, title, _)| (*title).to_owned()).collect::<Vec<_>>();
    let cells = |row: &Value| columns.iter().map(|Column(field, _, show)| shown(&row[*field], *show)).collect();
    let mut table = fit::table(std::iter::once(titles).chain(rows.iter().map(cells)), window);
    for (index, Column(.., show)) in columns.iter().enumerate() {
        if let (Show::Number | Show::Span, Some(column)) = (show, table.column_mut(index)) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt() + "\n"
}

/// A text of a row, on one line, without what a terminal would obey.
pub(super) fn text(value: &Value) -> String {
    printable::line(value.as_str().unwrap_or_default()).into_owned()
}

/// One value for people; nothing for NULL.
pub(super) fn shown(value: &Value, show: Show) -> String {
    let text = match value {
        Value::Null => return String::new(),
        Value::String(_) => text(value).split_whitespace().collect::<Vec<_>>().join(" "),
        other => printable::json(&other.to_string()).into_owned(),
    };
    let text = match show {
        // 2026-01-31T12:00:00.123+00:00
        Show::Time => time(&text),
        Show::Span => text.split('.').next().unwrap_or_default().to_owned(),
        Show::Text | Show::Number => text,
    };
    if text.chars().count() > TEXT_CHARS_MAX {
        return text.chars().take(TEXT_CHARS_MAX - 1).chain(['…']).collect();
    }
    text
}

/// To the second, with its zone.
fn time(text: &str) -> String {
    let (seconds, rest) = text.split_at_checked(19).unwrap_or((text, ""));
    let zone = rest.find(['+', '-', 'Z']).map_or("", |at| &rest[at..]);
    format!("{}{}", seconds.replacen('T', " ", 1), zone.strip_suffix(":00").unwrap_or(zone))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_shown_short() {
        assert_eq!(shown(&json!("2026-01-31T12:00:00.123+00:00"), Show::Time), "2026-01-31 12:00:00+00");
        assert_eq!(shown(&json!("2026-01-31T12:00:00-03:30"), Show::Time), "2026-01-31 12:00:00-03:30");
        assert_eq!(shown(&json!("infinity"), Show::Time), "infinity");
        assert_eq!(shown(&json!("1 day 00:00:03.25"), Show::Span), "1 day 00:00:03");
        assert_eq!(shown(&json!("two\nlines"), Show::Text), "two lines");
        assert_eq!(shown(&json!("\u{1b}[2J"), Show::Text), "\u{fffd}[2J");
        assert_eq!(shown(&json!({ "k": "\u{9b}" }), Show::Text), r#"{"k":"\u009b"}"#);
        assert_eq!(shown(&json!(17), Show::Number), "17");
        assert_eq!(shown(&Value::Null, Show::Text), "");
        assert_eq!(shown(&json!("x".repeat(100)), Show::Text).chars().count(), TEXT_CHARS_MAX);
    }
}
