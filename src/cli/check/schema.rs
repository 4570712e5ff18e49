//! Whether the schema is there, as new as this binary, and open to this login: what to run, or what to grant.

use super::postgres::Facts;
use super::report::{Finding, State};
use crate::store::command::Session;
use crate::store::migrate;

/// What was found, and whether the tables can be asked further.
pub(super) struct Checked {
    pub(super) findings: Vec<Finding>,
    pub(super) is_usable: bool,
}

pub(super) async fn check(session: &Session, facts: &Facts) -> Result<Checked, tokio_postgres::Error> {
    let mut checked = find(session, facts).await?;
    if facts.has("roles_missing") {
        let text = format!(
            "missing: {}; `outboxd migrate` creates them, or a DBA runs what `outboxd roles` prints",
            facts.text("roles_missing")
        );
        checked.findings.push(Finding::new("roles", State::Warn, text));
    }
    Ok(checked)
}

async fn find(session: &Session, facts: &Facts) -> Result<Checked, tokio_postgres::Error> {
    let closed = |finding: Finding| Checked { findings: vec![finding], is_usable: false };
    let (user, owner) = (facts.text("user_name"), facts.text("schema_owner"));
    if !facts.is("schema_exists") {
        return Ok(closed(if facts.is("may_create_schema") {
            Finding::new("schema", State::Warn, "outboxd is not there yet; run outboxd migrate")
        } else {
            let text = format!(
                "outboxd is not there yet, and {user} may not create it; run outboxd migrate as a login that may"
            );
            Finding::new("schema", State::Refused, text)
        }));
    }
    if !facts.is("history_exists") {
        return Ok(closed(to_migrate(facts, "outboxd holds no migrations yet")));
    }
    if !facts.is("history_readable") {
        let text = format!("outboxd is there, but {user} may not use it; {}", grant(facts));
        return Ok(closed(Finding::new("schema", State::Refused, text)));
    }
    let version = match migrate::schema_version(session).await {
        Ok(version) => version,
        Err(migrate::Error::Database(error)) => return Err(error),
        Err(error) => return Ok(closed(Finding::new("schema", State::Refused, error.to_string()))),
    };
    let newest = migrate::newest();
    if version < newest {
        return Ok(closed(to_migrate(facts, &format!("outboxd is at migration {version} of {newest}"))));
    }
    let text = match version > newest {
        true => format!("outboxd at migration {version}, newer than this binary ({newest}), which works beside it"),
        false => format!("outboxd at migration {version}, owned by {owner}"),
    };
    let mut findings = vec![Finding::new("schema", State::Ok, text)];
    let missing = rights(session, facts).await?;
    let is_usable = missing.is_none();
    findings.extend(missing);
    Ok(Checked { findings, is_usable })
}

/// An instance brings the schema up to date itself, if its login owns it.
fn to_migrate(facts: &Facts, what: &str) -> Finding {
    if facts.is("owns_schema") {
        return Finding::new("schema", State::Warn, format!("{what}; run outboxd migrate"));
    }
    let text = format!("{what}; run outboxd migrate as its owner, {}", facts.text("schema_owner"));
    Finding::new("schema", State::Refused, text)
}

async fn rights(session: &Session, facts: &Facts) -> Result<Option<Finding>, tokio_postgres::Error> {
    let rows = session.simple_rows(include_str!("../../../sql/queries/cli/find_missing_rights.sql")).await?;
    let of = |name: &str| rows.first().and_then(|row| row.get(name)).unwrap_or_default();
    let missing: u64 = of("missing").parse().unwrap_or_default();
    if missing == 0 {
        return Ok(None);
    }
    let user = facts.text("user_name");
    let text = format!("{user} lacks rights on {missing} parts of outboxd ({}, …); {}", of("names"), grant(facts));
    Ok(Some(Finding::new("grants", State::Refused, text)))
}

/// What to type so that this login may work.
fn grant(facts: &Facts) -> String {
    let (user, owner) = (quoted(facts.text("user_name")), facts.text("schema_owner"));
    if !facts.has("is_service") {
        return format!(
            "there is no role outboxd_service: let a DBA run what `outboxd roles` prints, run outboxd migrate as {owner}, \
             then GRANT outboxd_service TO {user}"
        );
    }
    match (facts.is("is_service"), facts.is("inherits_service")) {
        (false, _) if facts.is("is_of_others") => {
            "it is an app's or an operator's, and outboxd wants a login of its own: \
             CREATE ROLE outboxd_daemon LOGIN PASSWORD '…' IN ROLE outboxd_service"
                .to_owned()
        }
        (false, _) => format!("GRANT outboxd_service TO {user}"),
        (true, false) => format!("it is a member of outboxd_service and does not inherit: ALTER ROLE {user} INHERIT"),
        (true, true) => format!("outboxd_service lacks them: run outboxd migrate as {owner}"),
    }
}

/// A name as SQL wants it.
fn quoted(name: &str) -> String {
    let is_plain = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if is_plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}
