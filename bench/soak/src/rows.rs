//! The end: everything heals, all of it ends, and what the database has is read.

use std::time::{Duration, Instant};

use anyhow::Result;
use tokio_postgres::Client;

use super::evidence::{self, Evidence, Span};
use super::providers::CHANNELS;
use super::verdict::{Rule, Violation};
use super::world::World;
use super::writers::draft::TOPICS;

/// Of one slot, each recipient has one notification.
const COPIED_TWICE: &str =
    "SELECT min(id), format('%s has %s notifications of the slot %s', recipient, count(*), send_at)
    FROM outboxd.notifications WHERE topic = 'campaign' GROUP BY recipient, send_at HAVING count(*) > 1";
const LIVE: &str = "SELECT (SELECT count(*) FROM outboxd.notifications WHERE finished_at IS NULL)
                         + (SELECT count(*) FROM outboxd.event_outbox)";
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
    let orders = client.query("SELECT n FROM app.orders", &[]).await?;
    let log = world.log().clone();
    let losses = log.happened.iter().filter(|happened| happened.fault.kind.loses_redis());
    let span = |happened: &super::world::Happened| Span {
        from: happened.began,
        until: happened.healed.unwrap_or(happened.began),
    };
    Ok(Evidence {
        committed: orders.iter().map(|row| row.get(0)).collect(),
        rows: evidence::rows(client, Some("n")).await?,
        arrivals: world.providers.ledger(),
        redis_losses: losses.map(span).collect(),
        writes: log.writes,
        sightings: log.sightings,
        lost_tails: log.lost_tails,
        retried: log.retried,
    })
}

/// What must not be besides what the ledger shows.
pub(super) async fn find_illegal_states(world: &World, client: &Client) -> Result<Vec<Violation>> {
    let violation = |id: Option<i64>, known: String| Violation { rule: Rule::State, number: None, id, known };
    let mut found = Vec::new();
    let illegal = evidence::illegal_rows(client).await?;
    found.extend(illegal.into_iter().map(|(id, known)| violation(Some(id), known)));
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
