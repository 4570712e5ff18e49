//! The end: everything heals, all of it ends, and what the database has is read.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio_postgres::Client;

use super::evidence::{Evidence, Row, Span, Subject};
use super::providers::CHANNELS;
use super::verdict::{Rule, Violation};
use super::world::World;
use super::writers::draft::TOPICS;

/// Rows that our own statements must never write, with the rule each breaks.
const ILLEGAL_ROWS: &str = include_str!("illegal_rows.sql");
/// Of one slot, each recipient has one notification.
const COPIED_TWICE: &str =
    "SELECT min(id), format('%s has %s notifications of the slot %s', recipient, count(*), send_at)
    FROM outboxd.notifications WHERE topic = 'campaign' GROUP BY recipient, send_at HAVING count(*) > 1";
const LIVE: &str = "SELECT (SELECT count(*) FROM outboxd.notifications WHERE finished_at IS NULL)
                         + (SELECT count(*) FROM outboxd.event_outbox)";
const ROWS: &str = "
    SELECT n.id, (extract(epoch FROM n.created_at) * 1000000)::bigint, n.payload ->> 'n', n.status, n.dedup_key,
           n.attempts, coalesce(a.numbers, '{}'), coalesce(a.is_late, false), coalesce(a.probes, 0)
      FROM outboxd.notifications n
      LEFT JOIN (SELECT notification_id, array_agg(number) AS numbers, bool_or(outcome = 'late success') AS is_late,
                        count(*) FILTER (WHERE number IS NULL AND outcome = 'failed') AS probes
                   FROM outboxd.attempts GROUP BY 1) a ON a.notification_id = n.id";
/// After the last row has ended: calls that nobody waits for any more.
const STRAGGLERS: Duration = Duration::from_secs(3);

/// No more campaigns, nothing paused; waits until all has ended, but not for ever. How many have not.
pub(super) async fn until_ended(world: &World, patience: Duration, mut report: impl FnMut(i64)) -> Result<i64> {
    let admin = world.admin().await?;
    // A failover may have taken the campaign away.
    let _ = admin.client.query("SELECT outboxd.drop_schedule('minutely')", &[]).await;
    for topic in TOPICS {
        admin.client.query("SELECT outboxd.resume($1)", &[&topic]).await?;
    }
    for channel in CHANNELS {
        admin.client.query("SELECT outboxd.resume_channel($1)", &[&channel]).await?;
    }
    let deadline = Instant::now() + patience;
    loop {
        let live: i64 = admin.client.query_one(LIVE, &[]).await?.get(0);
        report(live);
        if live == 0 || Instant::now() > deadline {
            tokio::time::sleep(STRAGGLERS).await;
            return Ok(live);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Joins what was written down with what the database has.
pub(super) async fn collect(world: &World, client: &Client) -> Result<Evidence> {
    let mut rows = HashMap::new();
    for row in client.query(ROWS, &[]).await.context("the rows")? {
        let number = row.get::<_, Option<&str>>(2).and_then(|text| text.parse().ok());
        let subject = number.map_or_else(|| Subject::Row(row.get(0), row.get(1)), Subject::Number);
        let seen = Row {
            id: row.get(0),
            status: row.get(3),
            dedup_key: row.get(4),
            attempts: u32::try_from(row.get::<_, i32>(5)).unwrap_or(0),
            witnesses: row.get::<_, Vec<Option<i32>>>(6).iter().map(|number| number.and_then(as_u32)).collect(),
            is_late: row.get(7),
            probes: usize::try_from(row.get::<_, i64>(8)).unwrap_or(0),
        };
        rows.insert(subject, seen);
    }
    let orders = client.query("SELECT n FROM app.orders", &[]).await?;
    let log = world.log().clone();
    let losses = log.happened.iter().filter(|happened| happened.fault.kind.loses_redis());
    let span = |happened: &super::world::Happened| Span {
        from: happened.began,
        until: happened.healed.unwrap_or(happened.began),
    };
    Ok(Evidence {
        committed: orders.iter().map(|row| row.get(0)).collect(),
        rows,
        arrivals: world.providers.ledger(),
        redis_losses: losses.map(span).collect(),
        writes: log.writes,
        sightings: log.sightings,
        lost_tails: log.lost_tails,
        retried: log.retried,
    })
}

fn as_u32(number: i32) -> Option<u32> {
    u32::try_from(number).ok()
}

/// What must not be besides what the ledger shows.
pub(super) async fn find_illegal_states(world: &World, client: &Client) -> Result<Vec<Violation>> {
    let violation = |id: Option<i64>, known: String| Violation { rule: Rule::State, number: None, id, known };
    let mut found = Vec::new();
    for row in client.query(ILLEGAL_ROWS, &[]).await.context("the rules of rows")? {
        found.push(violation(row.get(0), row.get(1)));
    }
    if world.log().lost_tails.is_empty() {
        // A run whose record went with the tail is made again.
        for row in client.query(COPIED_TWICE, &[]).await? {
            found.push(violation(row.get(0), row.get(1)));
        }
    }
    for (place, instance) in world.instances.iter().enumerate() {
        let crashes = instance.lock().await.crashes.clone();
        found.extend(crashes.iter().map(|status| violation(None, format!("instance {place} ended with {status}"))));
    }
    Ok(found)
}
