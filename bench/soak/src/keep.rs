//! What is kept for debugging: the ledger, the app's log, the faults, the servers' logs, the rows that broke a promise.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tokio_postgres::Client;

use super::evidence::{Evidence, Subject};
use super::verdict::Verdict;
use super::world::World;

/// Rows whose story is written out at most.
const ROWS_MAX: usize = 200;
/// One table a line each, in the order of a notification's life.
const STORIES: [(&str, &str); 4] = [
    (
        "notification_log",
        "SELECT to_jsonb(t)::text FROM outboxd.notification_log t WHERE t.id = ANY ($1) ORDER BY t.id",
    ),
    ("outbox", "SELECT to_jsonb(t)::text FROM outboxd.outbox t WHERE t.id = ANY ($1) ORDER BY t.id"),
    ("attempt", "SELECT to_jsonb(t)::text FROM outboxd.attempt t WHERE t.notification_id = ANY ($1) ORDER BY t.id"),
    (
        "audit",
        "SELECT to_jsonb(t)::text FROM outboxd.audit t WHERE t.subject = ANY ($1::bigint[]::text[]) ORDER BY t.id",
    ),
];

/// Where to: as told, or a new directory.
pub(super) fn directory(wanted: Option<&Path>) -> Result<PathBuf> {
    let dir = match wanted {
        Some(dir) => dir.to_owned(),
        None => std::env::temp_dir().join(format!("outboxd-soak-{:016x}", rand::random::<u64>())),
    };
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    Ok(dir)
}

/// Writes all of it.
pub(super) async fn write(
    dir: &Path,
    world: &World,
    client: &Client,
    evidence: &Evidence,
    verdict: &Verdict,
) -> Result<()> {
    std::fs::write(dir.join("ledger.tsv"), ledger(evidence))?;
    std::fs::write(dir.join("app.tsv"), app_log(evidence))?;
    std::fs::write(dir.join("faults.txt"), format!("{:#?}\n", world.log().happened))?;
    for (place, instance) in world.instances.iter().enumerate() {
        std::fs::copy(instance.lock().await.process.supervisor.path("log"), dir.join(format!("instance-{place}.log")))?;
    }
    for (place, log) in world.databases.lock().await.logs().iter().enumerate() {
        std::fs::write(dir.join(format!("postgres-{place}.log")), log)?;
    }
    let ids: BTreeSet<i64> = verdict.violations.iter().filter_map(|violation| violation.id).take(ROWS_MAX).collect();
    let ids: Vec<i64> = ids.into_iter().collect();
    let mut rows = String::new();
    for (table, sql) in STORIES {
        for row in client.query(sql, &[&ids]).await.with_context(|| format!("the rows of {table}"))? {
            let _ = writeln!(rows, "{table}\t{}", row.get::<_, &str>(0));
        }
    }
    let workers = "SELECT to_jsonb(t)::text FROM outboxd.instance t ORDER BY 1";
    for row in client.query(workers, &[]).await? {
        let _ = writeln!(rows, "instance\t{}", row.get::<_, &str>(0));
    }
    std::fs::write(dir.join("rows.jsonl"), rows).context("cannot write the rows")
}

fn ledger(evidence: &Evidence) -> String {
    let mut text = String::from("at_us\tsubject\tattempt\tchannel\treply\twebhook_id\n");
    for arrival in &evidence.arrivals {
        let (at, subject) = (arrival.at, name(&arrival.subject));
        let (attempt, channel, answer) = (arrival.attempt, &arrival.channel, arrival.answer);
        let _ = writeln!(text, "{at}\t{subject}\t{attempt}\t{channel}\t{answer:?}\t{}", arrival.webhook_id);
    }
    text
}

fn app_log(evidence: &Evidence) -> String {
    let mut text = String::from("number\tbegan_us\tended_us\toutcome\tkey\tasked\tis_committed\n");
    for write in &evidence.writes {
        let key = write.key.as_deref().unwrap_or("-");
        let is_committed = evidence.committed.contains(&write.number);
        let _ = writeln!(
            text,
            "{}\t{}\t{}\t{:?}\t{key}\t{:?}\t{is_committed}",
            write.number, write.began, write.ended, write.outcome, write.asked
        );
    }
    text
}

fn name(subject: &Subject) -> String {
    match subject {
        Subject::Number(number) => format!("n{number}"),
        Subject::Row(id, _) => format!("id{id}"),
    }
}
