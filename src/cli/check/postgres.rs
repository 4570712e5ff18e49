//! Whether Postgres answers, and what it holds.

use tokio_postgres::{Client, SimpleQueryMessage, SimpleQueryRow};

use super::report::{Finding, State};
use crate::config::Config;
use crate::migrate;
use crate::store::connect;

const DESCRIBE_SERVER: &str = include_str!("../../../sql/queries/check_describe_server.sql");

/// Versions (as `server_version_num` / 10000) that are tested.
const SUPPORTED: std::ops::RangeInclusive<u32> = 14..=18;

pub(super) async fn check(config: &Config) -> Vec<Finding> {
    let (client, connection) = match connect::connect(&config.database_url, config.database.connect_timeout).await {
        Ok(made) => made,
        Err(error) => return vec![Finding::new("postgres", State::Failed, error.to_string())],
    };
    let driver = tokio::spawn(connection);
    let findings = tokio::time::timeout(config.database.statement_timeout, look(&client)).await;
    drop(client);
    let ended = driver.await;
    match findings {
        Ok(Ok(findings)) => findings,
        Ok(Err(error)) => vec![Finding::new("postgres", State::Failed, connect::classify(&error).to_string())],
        Err(_) => vec![Finding::new("postgres", State::Failed, format!("does not answer queries ({ended:?})"))],
    }
}

// The simple protocol throughout: a transaction-mode pooler may not know prepared statements.
async fn look(client: &Client) -> Result<Vec<Finding>, tokio_postgres::Error> {
    let Some(row) = first_row(client, DESCRIBE_SERVER).await? else {
        return Ok(vec![Finding::new("postgres", State::Failed, "gave no answer")]);
    };
    let text = |name: &str| row.get(name).unwrap_or("?").to_owned();
    let flag = |name: &str| row.get(name) == Some("t");
    let mut findings = vec![server(&row)];
    let schema = match (flag("schema_exists"), flag("history_exists"), flag("history_readable")) {
        (false, ..) => Finding::new("schema", State::Warn, "outboxd is not there yet; run outboxd migrate"),
        (true, false, _) => Finding::new("schema", State::Warn, "outboxd holds no migrations yet; run outboxd migrate"),
        (true, true, false) => {
            let text = format!(
                "outboxd is there, but {} may not read its history; grant outboxd_service to that role",
                text("user_name")
            );
            Finding::new("schema", State::Warn, text)
        }
        (true, true, true) => match migrate::schema_version(client).await {
            Ok(version) => Finding::new("schema", State::Ok, format!("outboxd at migration {version}")),
            Err(migrate::Error::Database(error)) => return Err(error),
            Err(error) => Finding::new("schema", State::Failed, error.to_string()),
        },
    };
    findings.push(schema);
    Ok(findings)
}

fn server(row: &SimpleQueryRow) -> Finding {
    let text = |name: &str| row.get(name).unwrap_or("?");
    let major = text("version_num").parse::<u32>().unwrap_or_default() / 10_000;
    let described = format!(
        "version {}, database {}, user {}, TLS {}",
        text("version"),
        text("database_name"),
        text("user_name"),
        row.get("tls_version").unwrap_or("off")
    );
    if major < *SUPPORTED.start() {
        let text =
            format!("{described}; versions {} to {} are supported, so upgrade it", SUPPORTED.start(), SUPPORTED.end());
        return Finding::new("postgres", State::Failed, text);
    }
    if major > *SUPPORTED.end() {
        let text = format!("{described}; newer than what was tested ({} to {})", SUPPORTED.start(), SUPPORTED.end());
        return Finding::new("postgres", State::Warn, text);
    }
    Finding::new("postgres", State::Ok, described)
}

async fn first_row(client: &Client, sql: &str) -> Result<Option<SimpleQueryRow>, tokio_postgres::Error> {
    let messages = client.simple_query(sql).await?;
    Ok(messages.into_iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    }))
}
