//! The verdict: what the providers wrote down, held against what the app committed.
//!
//! outboxd's own record is not asked whether anything arrived. It is asked only whether a repeated delivery was
//! expected: a repeat is explained if `outboxd.attempts` has a row of the call before it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use anyhow::Result;
use chrono::{DateTime, Utc};
use outboxd_throwaway::evidence::{self, Answer, Evidence, Micros, Subject};
use outboxd_throwaway::verdict::{Rule, judge};
use tokio_postgres::Client;

use super::providers::{CHANNELS, Seen};
use super::shop::Sales;
use super::stage::{Stage, count};

/// What came out.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Verdict {
    /// Orders in the database.
    committed: usize,
    /// Orders that a provider accepted.
    delivered: usize,
    /// Called although never committed.
    phantoms: usize,
    /// Accepted more often than once.
    duplicates: usize,
    /// Of all repeats, those that no attempt explains.
    unexplained: usize,
    /// First acceptances, by channel.
    by_channel: BTreeMap<String, usize>,
    /// From COMMIT returned to the first acceptance, sorted.
    waits: Vec<Duration>,
}

impl Verdict {
    /// Committed and never accepted.
    fn lost(&self) -> usize {
        self.committed - self.delivered
    }

    /// Whether the promise was kept.
    pub(super) fn is_good(&self) -> bool {
        self.lost() == 0 && self.phantoms == 0 && self.unexplained == 0
    }

    /// Joins the ledger with what was committed, and when the app knew.
    fn of(evidence: &Evidence, commits: &HashMap<i64, Micros>) -> Verdict {
        let (committed, unexplained) = (evidence.committed.len(), judge(evidence).count(Rule::Repeat));
        let mut verdict = Verdict { committed, unexplained, ..Verdict::default() };
        let mut accepted: HashSet<i64> = HashSet::new();
        for call in &evidence.arrivals {
            let Subject::Number(order) = call.subject else { continue };
            if !evidence.committed.contains(&order) {
                verdict.phantoms += 1;
                continue;
            }
            if call.answer != Answer::Accepted {
                continue;
            }
            if !accepted.insert(order) {
                verdict.duplicates += 1;
                continue;
            }
            *verdict.by_channel.entry(call.channel.clone()).or_default() += 1;
            // A call may arrive before COMMIT has returned to the app.
            let waited = commits.get(&order).map(|at| call.at.saturating_sub(*at));
            verdict.waits.extend(waited.map(Duration::from_micros));
        }
        verdict.delivered = accepted.len();
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
        let explained = self.duplicates.saturating_sub(self.unexplained);
        let explained = format!("{} of them after an outcome that was unknown", count(explained));
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
        stage.say(&format!("\n  {}", stage.strong(&format!("lost {}", count(self.lost())))))
    }
}

/// Asks the database what was committed and which outcomes were unknown, and joins the ledger with it.
pub(super) async fn reach(client: &Client, calls: Vec<Seen>, sales: &Sales) -> Result<Verdict> {
    let orders = client.query("SELECT id FROM shop.orders", &[]).await?;
    let commits: HashMap<i64, Micros> = sales.commits().into_iter().collect();
    // An order the app saw committed and the database does not have is lost too, whoever lost it.
    let committed = orders.iter().map(|row| row.get(0)).chain(commits.keys().copied()).collect();
    let rows = evidence::rows(client, Some("order")).await?;
    let arrivals = calls.into_iter().map(|call| call.arrival).collect();
    Ok(Verdict::of(&Evidence { committed, rows, arrivals, ..Evidence::default() }, &commits))
}

/// Puts the ledger beside the orders, so that anyone can join them again in SQL.
pub(super) async fn file_ledger(client: &Client, calls: &[Seen]) -> Result<()> {
    let arrived: Vec<DateTime<Utc>> = calls.iter().map(Seen::at).collect();
    let channels: Vec<&str> = calls.iter().map(|call| call.arrival.channel.as_str()).collect();
    let orders: Vec<Option<i64>> = calls.iter().map(Seen::order).collect();
    let ids: Vec<&str> = calls.iter().map(|call| call.arrival.webhook_id.as_str()).collect();
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
    use outboxd_throwaway::evidence::{Arrival, Row};

    use super::*;

    /// One order was committed; these calls were made, of this order, with this status.
    fn verdict(calls: &[(i64, u16)]) -> Verdict {
        let row = Row { id: 7, status: "SENT".into(), attempts: 1, ..Row::default() };
        let arrival = |(order, status): &(i64, u16)| Arrival {
            at: 1_000_000,
            subject: Subject::Number(*order),
            channel: "push".into(),
            webhook_id: format!("ntf-{order}"),
            attempt: 1,
            answer: Some(*status).into(),
        };
        let evidence = Evidence {
            committed: HashSet::from([1]),
            rows: HashMap::from([(Subject::Number(1), row)]),
            arrivals: calls.iter().map(arrival).collect(),
            ..Evidence::default()
        };
        Verdict::of(&evidence, &HashMap::from([(1, 990_000)]))
    }

    #[test]
    fn an_order_that_was_accepted_once_is_delivered_whatever_was_refused_before() {
        let good = verdict(&[(1, 200)]);
        assert!(good.is_good() && good.wait(0.5) == Duration::from_millis(10), "{good:?}");
        assert_eq!(verdict(&[(1, 503)]).lost(), 1, "a refused call delivers nothing");
    }

    #[test]
    fn a_call_for_what_was_never_committed_is_a_phantom() {
        let verdict = verdict(&[(1, 200), (2, 503)]);
        assert_eq!((verdict.lost(), verdict.phantoms, verdict.is_good()), (0, 1, false));
    }

    #[test]
    fn a_repeat_is_explained_only_by_an_attempt() {
        let verdict = verdict(&[(1, 200), (1, 200)]);
        assert_eq!((verdict.delivered, verdict.duplicates, verdict.unexplained), (1, 1, 1));
        assert!(!verdict.is_good());
    }
}
