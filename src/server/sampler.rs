//! Gauges that must be asked for: rows by topic and status, how late publishing is, how full the queue is, how each check
//! of the view `health` stands.
//!
//! Rows are not counted here: one instance takes the snapshot for all (see the reporter), and each shows the last one. Over
//! instances take the maximum, not the sum.
//!
//! **Guarantee.** A series that has nothing left to count says 0, and labels are bounded. **Limit.** What is shown is
//! as old as the last sample and the snapshot in it; `outboxd_sampled_timestamp_seconds` tells.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use metrics::gauge;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{Parts, Readiness};
use crate::store::StageError;
use crate::store::observe::Snapshot;
use crate::telemetry::recorder;
use crate::telemetry::statistics::OTHER;

/// Topics with a label of their own: each label is a series that Prometheus keeps.
const LABELS_MAX: usize = 100;
/// Between samples.
const SAMPLE_EVERY: Duration = Duration::from_secs(2);
/// Between reads of the snapshot, which is taken as often at most.
const SNAPSHOT_EVERY: Duration = Duration::from_secs(5);
/// Between reads of the view `health`, which asks the server's own statistics too.
const HEALTH_EVERY: Duration = Duration::from_secs(30);

/// Which series exist: a series that has nothing to count any more must say 0.
#[derive(Debug, Default)]
struct Series {
    topics: BTreeSet<String>,
    rows: BTreeMap<(String, &'static str), u64>,
    snapshot_at: Option<Instant>,
    health_at: Option<Instant>,
}

/// Samples until `stop`, once the instance has started.
pub(super) async fn run(readiness: &Readiness, stop: &CancellationToken) {
    let Some(parts) = stop.run_until_cancelled(readiness.parts()).await else { return };
    let mut series = Series::default();
    let mut is_down = false;
    let mut wait = Duration::ZERO;
    while stop.run_until_cancelled(tokio::time::sleep(wait)).await.is_some() {
        // Histograms keep what was recorded until somebody sorts it into buckets; nobody may ever scrape.
        recorder::handle().run_upkeep();
        match stop.run_until_cancelled(pass(parts, &mut series)).await {
            Some(Ok(())) => is_down = false,
            Some(Err(error)) => {
                if !is_down {
                    warn!(%error, "gauges of rows and queue are out of date");
                }
                is_down = true;
            }
            None => return,
        }
        wait = SAMPLE_EVERY;
    }
}

async fn pass(parts: &Parts, series: &mut Series) -> Result<(), StageError> {
    // Sets the queue's own gauges.
    parts.queue.depth().await?;
    if series.snapshot_at.is_none_or(|at| at.elapsed() >= SNAPSHOT_EVERY)
        && let Some(snapshot) = parts.store.read_snapshot().await?
    {
        series.snapshot_at = Some(Instant::now());
        series.show(&snapshot);
        gauge!("outboxd_oldest_unpublished_age_seconds").set(snapshot.unpublished_age_s);
        gauge!("outboxd_sampled_timestamp_seconds").set(snapshot.taken_at_s);
    }
    if series.health_at.is_none_or(|at| at.elapsed() >= HEALTH_EVERY) {
        for (check, level) in parts.store.read_health().await? {
            gauge!("outboxd_health_level", "check" => check).set(f64::from(level));
        }
        series.health_at = Some(Instant::now());
    }
    Ok(())
}

impl Series {
    fn show(&mut self, snapshot: &Snapshot) {
        self.rows.values_mut().for_each(|rows| *rows = 0);
        for found in &snapshot.rows {
            let topic = self.label(&found.topic);
            *self.rows.entry((topic, found.status.name())).or_default() += found.rows;
        }
        for ((topic, status), rows) in &self.rows {
            gauge!("outboxd_rows", "topic" => topic.clone(), "status" => *status).set(*rows as f64);
        }
    }

    fn label(&mut self, topic: &str) -> String {
        if !self.topics.contains(topic) {
            if self.topics.len() >= LABELS_MAX {
                return OTHER.to_owned();
            }
            self.topics.insert(topic.to_owned());
        }
        topic.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notification::Status;
    use crate::store::observe::TopicRows;

    fn rows(topic: &str, rows: u64) -> TopicRows {
        TopicRows { topic: topic.to_owned(), status: Status::Queued, rows }
    }

    fn snapshot(rows: Vec<TopicRows>) -> Snapshot {
        Snapshot { rows, ..Snapshot::default() }
    }

    #[test]
    fn what_is_gone_counts_zero() {
        let mut series = Series::default();
        series.show(&snapshot(vec![rows("a", 3)]));
        series.show(&snapshot(vec![rows("b", 2)]));
        let shown: Vec<(&str, u64)> = series.rows.iter().map(|((topic, _), rows)| (topic.as_str(), *rows)).collect();
        assert_eq!(shown, [("a", 0), ("b", 2)]);
    }

    #[test]
    fn however_many_topics_there_are_the_labels_are_bounded() {
        let mut series = Series::default();
        series.show(&snapshot((0..LABELS_MAX * 3).map(|n| rows(&format!("topic-{n}"), 1)).collect()));
        assert_eq!(series.rows.len(), LABELS_MAX + 1);
        assert_eq!(series.rows[&(OTHER.to_owned(), "QUEUED")], LABELS_MAX as u64 * 2);
    }
}
