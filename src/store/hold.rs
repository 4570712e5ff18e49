//! What holds channels and origins, for all instances.

use std::time::Duration;

use super::instance::millis;
use super::{Result, Store, query};

/// A hold or an operator's pause, as every instance sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelHold {
    /// The channel.
    pub channel: String,
    /// Its origin; empty: the whole channel.
    pub origin: String,
    /// Whether an operator paused it.
    pub paused: bool,
    /// Why it is held, if it is.
    pub reason: Option<String>,
    /// How often in a row the circuit opened.
    pub openings: u32,
    /// How much of the hold is left.
    pub left: Duration,
    /// How long another instance still has for its probe.
    pub probe_elsewhere: Option<Duration>,
}

impl Store {
    /// What holds channels and origins now.
    pub async fn holds(&self, instance: i32) -> Result<Vec<ChannelHold>> {
        let rows = self.query(query!("holds_load_channels", Relaxed, [INT4]), &[&instance]).await?;
        let span = |ms: i64| Duration::from_millis(u64::try_from(ms).unwrap_or(0));
        let hold = |row: &tokio_postgres::Row| ChannelHold {
            channel: row.get("channel"),
            origin: row.get("origin"),
            paused: row.get("paused"),
            reason: row.get("reason"),
            openings: u32::try_from(row.get::<_, i32>("openings")).unwrap_or(0),
            left: span(row.get::<_, Option<i64>>("left_ms").unwrap_or(0)),
            probe_elsewhere: row.get::<_, Option<i64>>("probe_left_ms").map(span).filter(|left| !left.is_zero()),
        };
        Ok(rows.iter().map(hold).collect())
    }

    /// Holds an origin for all instances.
    pub async fn hold_origin(
        &self,
        channel: &str,
        origin: &str,
        wait: Duration,
        reason: &str,
        openings: u32,
    ) -> Result<()> {
        let query = query!("holds_hold_origin", Durable, [TEXT, TEXT, INT8, TEXT, INT4]);
        let openings = i32::try_from(openings).unwrap_or(i32::MAX);
        self.query(query, &[&channel, &origin, &millis(wait), &reason, &openings]).await.map(|_| ())
    }

    /// The provider is back.
    pub async fn release_origin(&self, channel: &str, origin: &str) -> Result<()> {
        self.query(query!("holds_release_origin", Durable, [TEXT, TEXT]), &[&channel, &origin]).await.map(|_| ())
    }

    /// Whether this instance may make the probe.
    pub async fn take_probe(&self, channel: &str, origin: &str, instance: i32, span: Duration) -> Result<bool> {
        let query = query!("holds_take_probe", Durable, [TEXT, TEXT, INT4, INT8]);
        Ok(!self.query(query, &[&channel, &origin, &instance, &millis(span)]).await?.is_empty())
    }

    /// The probe said nothing: anyone may make another.
    pub async fn end_probe(&self, channel: &str, origin: &str, instance: i32) -> Result<()> {
        let query = query!("holds_end_probe", Durable, [TEXT, TEXT, INT4]);
        self.query(query, &[&channel, &origin, &instance]).await.map(|_| ())
    }
}
