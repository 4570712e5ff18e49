//! Tells the views what this instance counted and sees: every few seconds its rollup, its queue's server, its clock;
//! and takes the census of the active set when it is time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::config::RouteConfig;
use crate::failpoint;
use crate::publisher::Publisher;
use crate::queue::Queue;
use crate::store::instance::InstanceId;
use crate::store::rollup::{QueueReport, Report};
use crate::store::{Result, Store};

/// Between reports.
const REPORT_EVERY: Duration = Duration::from_secs(2);
/// Whoever has just started has more urgent things to do than to count what waits.
const FIRST_CENSUS: Duration = Duration::from_secs(2);
/// Between removals of counts that no view shows any more.
const FORGET_EVERY: Duration = Duration::from_secs(60);

/// What a report stands on.
#[derive(Debug)]
pub struct Reporter {
    /// Where it is written.
    pub store: Store,
    /// Asked for what its server says of itself.
    pub queue: Arc<dyn Queue>,
    /// Knows what was published, and the rollup.
    pub publisher: Publisher,
    /// Who we are.
    pub instance: InstanceId,
    /// The routes in use: topic, position, channel.
    pub routes: Vec<(String, i16, String)>,
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
    published: u64,
    has_routes: bool,
    census_at: Instant,
    forget_at: Instant,
}

impl Default for Told {
    fn default() -> Told {
        let now = Instant::now();
        Told { published: 0, has_routes: false, census_at: now + FIRST_CENSUS, forget_at: now }
    }
}

impl Reporter {
    /// One report.
    pub async fn pass(&self, told: &mut Told) -> Result<()> {
        if !told.has_routes {
            self.store.write_routes(&self.routes).await?;
            told.has_routes = true;
        }
        let clock_skew_ms = self.add_counts(told).await?;
        let queue = match self.queue.server().await {
            Ok(None) => QueueReport::InProcess,
            Ok(Some(facts)) => QueueReport::Reachable(facts),
            Err(error) => QueueReport::Unreachable(error.to_string()),
        };
        self.store.report(self.instance.get(), &Report { clock_skew_ms, queue }).await?;
        if Instant::now() >= told.census_at {
            self.store.take_census().await?;
        }
        if Instant::now() >= told.forget_at {
            self.store.forget_counts().await?;
            told.forget_at = Instant::now() + FORGET_EVERY;
        }
        Ok(())
    }

    /// Adds what was counted since the last time. After an error it is kept: a second telling may then count what the
    /// first did after all, which a figure by the minute can bear better than a gap.
    async fn add_counts(&self, told: &mut Told) -> Result<i32> {
        let counts = self.publisher.rollup().take();
        let published = self.publisher.published();
        let asked = Utc::now();
        match self.store.add_counts(published - told.published, &counts).await {
            Ok(database_time) => {
                if !counts.is_empty() {
                    failpoint::hit("after_counts").await;
                }
                told.published = published;
                Ok(skew_ms(asked, database_time, Utc::now()))
            }
            Err(error) => {
                self.publisher.rollup().put_back(counts);
                Err(error)
            }
        }
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
    let mut is_down = false;
    while !stop.is_cancelled() {
        match reporter.pass(&mut told).await {
            Ok(()) => is_down = false,
            Err(error) => {
                if !is_down {
                    warn!(%error, "the views do not learn what this instance does");
                }
                is_down = true;
            }
        }
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
