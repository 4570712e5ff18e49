//! Whether Postgres answers, what it holds, and whether this login may work with it.

use std::time::{SystemTime, UNIX_EPOCH};

use tokio_postgres::SimpleQueryRow;

use super::report::{Finding, State};
use super::schema;
use crate::config::{Config, DEFAULT_ROUTE};
use crate::store::command::Session;
use crate::store::{self, connect, migrate, pooler};

/// As in the view `health`: from here on clocks differ, and from there on signatures are refused.
const CLOCK_WARN_MS: i64 = 1_000;
const CLOCK_FAILED_MS: i64 = 60_000;

/// What the server said of itself and of us, by name.
pub(super) struct Facts(SimpleQueryRow);

impl Facts {
    pub(super) fn text(&self, name: &str) -> &str {
        self.0.get(name).unwrap_or("?")
    }

    pub(super) fn is(&self, name: &str) -> bool {
        self.0.get(name) == Some("t")
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.get(name).is_some()
    }
}

pub(super) async fn check(config: &Config) -> Vec<Finding> {
    let one = |state: State, text: String| vec![Finding::new("postgres", state, text)];
    let session = match Session::open(config).await {
        Ok(session) => session,
        Err(error) => {
            let text = error.to_string();
            let state = if store::Error::from(error).is_passing() { State::Away } else { State::Refused };
            return one(state, text);
        }
    };
    let checks = async {
        let mut findings = find(&session, config).await?;
        findings.extend(sharing(config).await);
        Ok::<_, tokio_postgres::Error>(findings)
    };
    match tokio::time::timeout(config.database.statement_timeout, checks).await {
        Ok(Ok(findings)) => findings,
        Ok(Err(error)) => one(State::Away, connect::classify(&error).to_string()),
        Err(_) => one(State::Away, "does not answer queries".to_owned()),
    }
}

/// A pooler that the configuration does not know of.
async fn sharing(config: &Config) -> Option<Finding> {
    let error = pooler::refuse_shared(config).await.err()?;
    let state = if error.is_passing() { State::Away } else { State::Refused };
    Some(Finding::new("pooler", state, error.to_string()))
}

async fn find(session: &Session, config: &Config) -> Result<Vec<Finding>, tokio_postgres::Error> {
    let asked_at = now_ms();
    let sql = include_str!("../../../sql/queries/cli/describe_server.sql");
    let Some(row) = session.simple_rows(sql).await?.into_iter().next() else {
        return Ok(vec![Finding::new("postgres", State::Away, "gave no answer")]);
    };
    let (facts, answered_at) = (Facts(row), now_ms());
    let mut findings = vec![server(&facts)];
    match migrate::check_server(session).await {
        Err(error @ migrate::Error::NotUtf8 { .. }) => {
            findings.push(Finding::new("encoding", State::Refused, error.to_string()));
        }
        Err(migrate::Error::Database(error)) => return Err(error),
        // That it is too old is said above.
        _ => {}
    }
    findings.extend(clock(&facts, i64::midpoint(asked_at, answered_at)));
    let schema = schema::check(session, &facts).await?;
    let is_usable = schema.is_usable;
    findings.extend(schema.findings);
    if is_usable {
        findings.extend(topics(session, config).await?);
    }
    Ok(findings)
}

fn server(facts: &Facts) -> Finding {
    let major = facts.text("version_num").parse::<i32>().unwrap_or_default() / 10_000;
    let tls = if facts.has("tls_version") { facts.text("tls_version") } else { "off" };
    let described = format!(
        "version {}, database {}, user {}, TLS {tls}",
        facts.text("version"),
        facts.text("database_name"),
        facts.text("user_name"),
    );
    let (first, last) = (migrate::SERVER_VERSIONS.start(), migrate::SERVER_VERSIONS.end());
    let (state, more) = if major < *first {
        (State::Refused, format!("; versions {first} to {last} are supported, so upgrade it"))
    } else if facts.is("is_read_only") {
        let more = "; it takes no writes: name the primary, or list the hosts of which one is";
        (State::Away, more.to_owned())
    } else if major > *last {
        (State::Warn, format!("; newer than what was tested ({first} to {last})"))
    } else {
        (State::Ok, String::new())
    };
    Finding::new("postgres", state, described + &more)
}

/// Signatures and logs carry this machine's time, leases the database's.
fn clock(facts: &Facts, ours_ms: i64) -> Option<Finding> {
    let ahead_ms = ours_ms - facts.text("clock_ms").parse::<i64>().ok()?;
    let state = match ahead_ms.abs() {
        CLOCK_FAILED_MS.. => State::Away,
        CLOCK_WARN_MS.. => State::Warn,
        _ => return None,
    };
    let (seconds, side) = (ahead_ms.abs() / 1_000, if ahead_ms > 0 { "ahead of" } else { "behind" });
    let text = format!("this machine is {seconds} s {side} the database: synchronise the clocks (NTP)");
    Some(Finding::new("clock", state, text))
}

/// What is in a topic without a route waits until an instance has one.
async fn topics(session: &Session, config: &Config) -> Result<Option<Finding>, tokio_postgres::Error> {
    if config.routes.contains_key(DEFAULT_ROUTE) {
        return Ok(None);
    }
    let waiting = session.simple_rows(include_str!("../../../sql/queries/cli/find_waiting_topics.sql")).await?;
    let lost: Vec<&str> =
        waiting.iter().filter_map(|row| row.get(0)).filter(|topic| !config.routes.contains_key(*topic)).collect();
    let text = format!("no route for {}, and no [routes.default]: add one of them", lost.join(", "));
    Ok((!lost.is_empty()).then(|| Finding::new("routes", State::Warn, text)))
}

fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}
