//! Reports for the views what this instance counted and sees: every few seconds its statistics, its queue's server and
//! its clock; every few minutes whether there is a pooler before Postgres. Takes the snapshot of the active set when it
//! is due.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::channel::descriptors::Descriptors;
use crate::channel::failover::Router;
use crate::channel::share::Shares;
use crate::config::{DEFAULT_ROUTE, RouteConfig};
use crate::failpoint;
use crate::notification::Status;
use crate::queue::Queue;
use crate::store::instance::InstanceId;
use crate::store::statistics::{FilesReport, QueueReport, Report};
use crate::store::{Error, Result, Store};
use crate::telemetry::outage::Outage;
use crate::telemetry::shortages::Shortages;
use crate::telemetry::statistics::{Counts, Statistics};

/// Between reports.
const REPORT_EVERY: Duration = Duration::from_secs(3);
/// Whoever has just started has more urgent things to do than to count what waits.
const FIRST_SNAPSHOT: Duration = Duration::from_secs(2);
/// Between requests for a snapshot: it is taken every five seconds at most.
const SNAPSHOT_EVERY: Duration = Duration::from_secs(4);
/// Between removals of counts that no view shows any more.
const FORGET_EVERY: Duration = Duration::from_secs(60);
/// Between checks for a pooler. Each makes two connections.
const ASK_FOR_POOLER_EVERY: Duration = Duration::from_secs(300);
/// Between lines of the log that say which channels' calls fail.
const SAY_EVERY: Duration = Duration::from_secs(60);
/// Topics without a route that are told of.
const UNROUTED_MAX: usize = 100;

/// What a report stands on.
#[derive(Debug)]
pub struct Reporter {
    /// Where it is written.
    pub store: Store,
    /// Asked for what its server says of itself.
    pub queue: Arc<dyn Queue>,
    /// What this instance counted.
    pub statistics: Arc<Statistics>,
    /// What its calls lacked.
    pub shortages: Arc<Shortages>,
    /// Files it may have open.
    pub files: Descriptors,
    /// Who we are.
    pub instance: InstanceId,
    /// The routes in use: topic, position, channel.
    pub routes: Vec<(String, i16, String)>,
    /// Its channels, asked which limits are reached.
    pub router: Arc<Router>,
    /// How topics share its calls, asked which have their share.
    pub shares: Arc<Shares>,
}

/// The routes of a configuration, as the views need them.
pub fn routes<'a>(routes: impl IntoIterator<Item = (&'a String, &'a RouteConfig)>) -> Vec<(String, i16, String)> {
    let mut all = Vec::new();
    for (topic, route) in routes {
        for (position, channel) in (0i16..).zip(&route.channels) {
            all.push((topic.clone(), position, channel.clone()));
        }
    }
    all
}

/// What was told so far.
#[derive(Debug)]
pub struct Told {
    has_routes: bool,
    snapshot_at: Instant,
    forget_at: Instant,
    failures_at: Instant,
    pooler_at: Instant,
    /// Topics with work and without a route here.
    unrouted: BTreeSet<String>,
}

impl Default for Told {
    fn default() -> Told {
        let now = Instant::now();
        Told {
            has_routes: false,
            snapshot_at: now + FIRST_SNAPSHOT,
            forget_at: now,
            failures_at: now,
            pooler_at: now,
            unrouted: BTreeSet::new(),
        }
    }
}

impl Reporter {
    /// One report. A part that fails does not keep the others from being told, unless Postgres is away.
    pub async fn pass(&self, told: &mut Told) -> Result<()> {
        let reported = self.report(told).await;
        if matches!(reported, Err(Error::Unavailable(_))) {
            return reported;
        }
        let snapshot = match Instant::now() >= told.snapshot_at {
            true => self.count(told).await,
            false => Ok(()),
        };
        let forgotten = self.forget_counts(told).await;
        reported.and(snapshot).and(forgotten)
    }

    /// Takes the snapshot, and says of each topic in it once that it has no route here: another instance may have one,
    /// so that nothing else tells.
    async fn count(&self, told: &mut Told) -> Result<()> {
        self.store.take_snapshot().await?;
        told.snapshot_at = Instant::now() + SNAPSHOT_EVERY;
        let has_route = |topic: &str| self.routes.iter().any(|(routed, ..)| routed == topic || routed == DEFAULT_ROUTE);
        if self.routes.is_empty() || has_route(DEFAULT_ROUTE) {
            return Ok(());
        }
        let snapshot = self.store.read_snapshot().await?.unwrap_or_default();
        for found in
            snapshot.rows.into_iter().filter(|found| found.status == Status::Queued && !has_route(&found.topic))
        {
            if told.unrouted.len() < UNROUTED_MAX && !told.unrouted.contains(&found.topic) {
                let topic = &found.topic;
                warn!(
                    topic,
                    waiting = found.rows,
                    "this instance has no route for the topic; its work waits for one that has"
                );
                told.unrouted.insert(found.topic);
            }
        }
        Ok(())
    }

    async fn forget_counts(&self, told: &mut Told) -> Result<()> {
        if Instant::now() >= told.forget_at {
            self.store.forget_counts().await?;
            told.forget_at = Instant::now() + FORGET_EVERY;
        }
        Ok(())
    }

    async fn report(&self, told: &mut Told) -> Result<()> {
        // Who has none only relays, and does not speak for the others.
        if !told.has_routes && !self.routes.is_empty() {
            self.store.write_routes(self.instance.get(), &self.routes).await?;
        }
        let clock_skew_ms = self.add_counts(told).await?;
        let queue = match self.queue.server().await {
            Ok(None) => QueueReport::InProcess,
            Ok(Some(facts)) => QueueReport::Reachable(facts),
            Err(error) => QueueReport::Unreachable(error.to_string()),
        };
        let now = Instant::now();
        let (limits, shares) = (self.router.limits_reached(now), self.shares.reached(now));
        let sessions_shared = self.ask_for_pooler(told).await;
        let topics: BTreeSet<&String> = self.routes.iter().map(|(topic, ..)| topic).collect();
        let topics = (!topics.is_empty()).then(|| topics.into_iter().cloned().collect());
        let files = FilesReport { limit: self.files.limit, wanted: self.files.wanted, short: self.shortages.last() };
        let report = Report { clock_skew_ms, queue, sessions_shared, topics, files, limits, shares };
        told.has_routes = self.store.report(self.instance.get(), &report).await?;
        Ok(())
    }

    /// The start refuses one. Connections that are made later may be led through it all the same.
    async fn ask_for_pooler(&self, told: &mut Told) -> Option<bool> {
        if Instant::now() < told.pooler_at {
            return None;
        }
        told.pooler_at = Instant::now() + ASK_FOR_POOLER_EVERY;
        Some(self.store.are_sessions_shared().await)
    }

    /// Adds what was counted since the last time. After an error it is kept: a second telling may then count what the
    /// first did after all, which a figure by the minute can bear better than a gap.
    async fn add_counts(&self, told: &mut Told) -> Result<i32> {
        let counts = self.statistics.take();
        say_what_fails(&counts, told);
        let asked = Utc::now();
        match self.store.add_counts(&counts).await {
            Ok(database_time) => {
                if !counts.is_empty() {
                    failpoint::hit("after_counts").await;
                }
                Ok(skew_ms(asked, database_time, Utc::now()))
            }
            Err(error) => {
                self.statistics.put_back(counts);
                Err(error)
            }
        }
    }
}

/// One line a channel whose calls failed, now and then. Not the errors: those of a URL from data may name a recipient's
/// host.
fn say_what_fails(counts: &Counts, told: &mut Told) {
    if Instant::now() < told.failures_at {
        return;
    }
    let mut channels: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for ((channel, _), calls) in &counts.channels {
        let (sent, failed) = channels.entry(channel).or_default();
        *sent += calls.sent;
        *failed += calls.failed + calls.unknown;
    }
    for (channel, (sent, failed)) in channels.into_iter().filter(|(_, (_, failed))| *failed > 0) {
        warn!(channel, failed, sent, "calls fail; why: outboxd.channel_health");
        told.failures_at = Instant::now() + SAY_EVERY;
    }
}

/// Our clock minus the database's, which answered between `asked` and `heard`: nothing, as long as that can be.
fn skew_ms(asked: DateTime<Utc>, database: DateTime<Utc>, heard: DateTime<Utc>) -> i32 {
    let skew = if database < asked {
        asked - database
    } else if database > heard {
        heard - database
    } else {
        chrono::TimeDelta::zero()
    };
    i32::try_from(skew.num_milliseconds()).unwrap_or(i32::MAX)
}

/// Reports until `stop`, and once more then: the counts of a drain.
pub async fn run(reporter: &Reporter, stop: &CancellationToken) {
    let mut told = Told::default();
    let mut outage = Outage::default();
    while !stop.is_cancelled() {
        outage.note(reporter.pass(&mut told).await, "the views do not learn what this instance does");
        stop.run_until_cancelled(tokio::time::sleep(REPORT_EVERY)).await;
    }
    if let Err(error) = reporter.add_counts(&mut told).await {
        warn!(%error, "the views do not learn the last that this instance did");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_agrees_within_the_round_trip_has_no_skew() {
        let at = |ms: i64| DateTime::from_timestamp_millis(1_700_000_000_000 + ms).expect("a time");
        assert_eq!(skew_ms(at(0), at(3), at(5)), 0);
        assert_eq!(skew_ms(at(100), at(0), at(105)), 100);
        assert_eq!(skew_ms(at(0), at(2_000), at(5)), -1_995);
    }
}
