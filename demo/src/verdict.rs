//! The verdict: what the providers wrote down, held against what the app committed.
//!
//! outboxd's own record is not asked whether anything arrived. It is asked only whether a repeated delivery was
//! expected: a repeat is explained if the notification has an attempt whose outcome was unknown.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use anyhow::Result;
use chrono::{DateTime, Utc};
use tokio_postgres::Client;

use super::providers::{CHANNELS, Call};
use super::shop::Sales;
use super::stage::{Stage, count};

/// What came out.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Verdict {
    /// Orders in the database.
    pub(super) committed: usize,
    /// Orders that a provider accepted.
    pub(super) delivered: usize,
    /// Committed and never accepted.
    pub(super) lost: usize,
    /// Called although never committed.
    pub(super) phantoms: usize,
    /// Accepted more often than once.
    pub(super) duplicates: usize,
    /// Of them, those after an unknown outcome.
    pub(super) explained: usize,
    /// First acceptances, by channel.
    pub(super) by_channel: BTreeMap<String, usize>,
    /// From COMMIT returned to the first acceptance, sorted.
    pub(super) waits: Vec<Duration>,
}

impl Verdict {
    /// Whether the promise was kept.
    pub(super) fn is_good(&self) -> bool {
        self.lost == 0 && self.phantoms == 0 && self.duplicates == self.explained
    }

    /// Joins the ledger with what was committed.
    fn of(calls: &[Call], commits: &HashMap<i64, Option<DateTime<Utc>>>, unknown: &HashSet<i64>) -> Verdict {
        let mut verdict = Verdict { committed: commits.len(), ..Verdict::default() };
        let mut accepted: HashSet<i64> = HashSet::new();
        for call in calls {
            let Some(order) = call.order else { continue };
            let Some(committed_at) = commits.get(&order) else {
                verdict.phantoms += 1;
                continue;
            };
            if !call.is_accepted() {
                continue;
            }
            if !accepted.insert(order) {
                verdict.duplicates += 1;
                verdict.explained += usize::from(unknown.contains(&order));
                continue;
            }
            *verdict.by_channel.entry(call.channel.clone()).or_default() += 1;
            // A call may arrive before COMMIT has returned to the app.
            verdict.waits.extend(committed_at.map(|at| (call.at - at).to_std().unwrap_or_default()));
        }
        verdict.delivered = accepted.len();
        verdict.lost = commits.len() - accepted.len();
        verdict.waits.sort_unstable();
        verdict
    }

    /// The wait that this share of the orders did not exceed.
    fn wait(&self, share: f64) -> Duration {
        let last = self.waits.len().saturating_sub(1);
        self.waits.get((last as f64 * share).round() as usize).copied().unwrap_or_default()
    }

    /// Prints it; the last line is what it is all about.
    pub(super) fn show(&self, stage: &Stage, rolled_back: usize, dead: i64) -> Result<()> {
        let line = |name: &str, number: usize, note: &str| {
            stage.say(format!("  {name:<34}{:>8}   {note}", count(number)).trim_end())
        };
        let by_channel: Vec<String> = CHANNELS
            .iter()
            .filter_map(|channel| Some(format!("{channel} {}", count(*self.by_channel.get(*channel)?))))
            .collect();
        let explained = format!("{} of them after an outcome that was unknown", count(self.explained));
        line("committed by the app", self.committed, "")?;
        line("rolled back on purpose", rolled_back, "")?;
        line("delivered", self.delivered, &by_channel.join(" · "))?;
        line("delivered though rolled back", self.phantoms, "")?;
        line("delivered twice", self.duplicates, if self.duplicates == 0 { "" } else { &explained })?;
        if dead > 0 {
            line("dead letters", usize::try_from(dead).unwrap_or(usize::MAX), "see outboxd.dead_letters")?;
        }
        stage.say(&format!(
            "  {:<34}p50 {} ms · p99 {} ms, outage and crash included",
            "commit → arrival",
            count(self.wait(0.5).as_millis()),
            count(self.wait(0.99).as_millis())
        ))?;
        stage.say(&format!("\n  {}", stage.strong(&format!("lost {}", count(self.lost)))))
    }
}

/// Asks the database what was committed and which outcomes were unknown, and joins the ledger with it.
pub(super) async fn reach(client: &Client, calls: &[Call], sales: &Sales) -> Result<Verdict> {
    let mut commits: HashMap<i64, Option<DateTime<Utc>>> = HashMap::new();
    for row in client.query("SELECT id FROM shop.orders", &[]).await? {
        commits.insert(row.get(0), None);
    }
    for (order, at) in sales.commits() {
        // An order the app saw committed and the database does not have is lost too, whoever lost it.
        commits.insert(order, Some(at));
    }
    let unknown = client
        .query(
            "SELECT DISTINCT (n.payload ->> 'order')::bigint FROM outboxd.attempts a
               JOIN outboxd.notifications n ON n.id = a.notification_id
              WHERE a.outcome = 'unknown' AND n.payload ? 'order'",
            &[],
        )
        .await?;
    let unknown = unknown.iter().map(|row| row.get(0)).collect();
    Ok(Verdict::of(calls, &commits, &unknown))
}

/// Puts the ledger beside the orders, so that anyone can join them again in SQL.
pub(super) async fn file_ledger(client: &Client, calls: &[Call]) -> Result<()> {
    let arrived: Vec<DateTime<Utc>> = calls.iter().map(|call| call.at).collect();
    let channels: Vec<&str> = calls.iter().map(|call| call.channel.as_str()).collect();
    let orders: Vec<Option<i64>> = calls.iter().map(|call| call.order).collect();
    let ids: Vec<&str> = calls.iter().map(|call| call.webhook_id.as_str()).collect();
    let statuses: Vec<i32> = calls.iter().map(|call| i32::from(call.status)).collect();
    client
        .execute(
            "INSERT INTO shop.provider_call (arrived_at, channel, order_id, webhook_id, status)
             SELECT * FROM unnest($1::timestamptz[], $2::text[], $3::bigint[], $4::text[], $5::int[])",
            &[&arrived, &channels, &orders, &ids, &statuses],
        )
        .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(order: i64, status: u16) -> Call {
        Call {
            at: DateTime::from_timestamp_millis(1_000).unwrap(),
            channel: "push".into(),
            webhook_id: format!("ntf-{order}"),
            recipient: "r".into(),
            order: Some(order),
            status,
        }
    }

    fn commits(orders: &[i64]) -> HashMap<i64, Option<DateTime<Utc>>> {
        orders.iter().map(|order| (*order, DateTime::from_timestamp_millis(990))).collect()
    }

    #[test]
    fn a_refused_call_delivers_nothing() {
        let verdict = Verdict::of(&[call(1, 503)], &commits(&[1]), &HashSet::new());
        assert_eq!((verdict.delivered, verdict.lost), (0, 1));
        assert!(!verdict.is_good());
    }

    #[test]
    fn a_call_for_what_was_never_committed_is_a_phantom() {
        let verdict = Verdict::of(&[call(1, 200), call(2, 503)], &commits(&[1]), &HashSet::new());
        assert_eq!((verdict.lost, verdict.phantoms), (0, 1));
        assert!(!verdict.is_good());
    }

    #[test]
    fn a_repeat_is_explained_only_by_an_unknown_outcome() {
        let calls = [call(1, 200), call(1, 200), call(2, 200), call(2, 200), call(3, 503), call(3, 200)];
        let verdict = Verdict::of(&calls, &commits(&[1, 2, 3]), &HashSet::from([1]));
        assert_eq!((verdict.delivered, verdict.duplicates, verdict.explained), (3, 2, 1));
        assert!(!verdict.is_good());
        assert_eq!(verdict.wait(0.5), Duration::from_millis(10));
    }
}
