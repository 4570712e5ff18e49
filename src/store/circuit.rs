//! Circuits and pauses of channels, as all instances see them.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::time::Duration;

use secrecy::SecretSlice;

use super::instance::millis;
use super::refusal::Values;
use super::{Error, Result, Store, query};

/// An open circuit, a provider's Retry-After or an operator's pause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelState {
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
    /// How long ago this was written.
    pub changed_ago: Duration,
    /// How long it is still held.
    pub left: Duration,
    /// How long another instance still has for its probe.
    pub probe_elsewhere: Option<Duration>,
}

/// What all instances know of topics.
#[derive(Debug, Clone, Default)]
pub struct KnownTopics {
    /// An operator paused them.
    pub paused: Vec<String>,
    /// Every other worker that shares our queue has a route for them; `None`: for all that we have one for.
    pub shared: Option<BTreeSet<String>>,
}

impl Store {
    /// What keeps channels and origins from being called now, and what holds of topics.
    pub async fn held(&self, instance: i32) -> Result<(Vec<ChannelState>, KnownTopics)> {
        let rows = self.query(query!("channel/load_held", Relaxed, [INT4]), &[&instance]).await?;
        let span = |ms: i64| Duration::from_millis(u64::try_from(ms).unwrap_or(0));
        let state = |row: &tokio_postgres::Row| -> Result<ChannelState> {
            Ok(ChannelState {
                channel: row.value("channel")?,
                origin: row.value("origin")?,
                paused: row.value("paused")?,
                reason: row.value("reason")?,
                openings: u32::try_from(row.value::<i32>("openings")?).unwrap_or(0),
                changed_ago: span(row.value("changed_ms_ago")?),
                left: span(row.value::<Option<i64>>("left_ms")?.unwrap_or(0)),
                probe_elsewhere: row.value::<Option<i64>>("probe_left_ms")?.map(span).filter(|left| !left.is_zero()),
            })
        };
        let (mut states, mut topics) = (Vec::new(), KnownTopics::default());
        for row in &rows {
            match row.value::<String>("what")?.as_str() {
                "paused topic" => topics.paused.push(row.value("topic")?),
                "shared topic" => topics.shared.get_or_insert_default().extend(row.value::<Option<String>>("topic")?),
                _ => states.push(state(row)?),
            }
        }
        Ok((states, topics))
    }

    /// An origin is not to be called for this long, by any instance.
    pub async fn open_circuit(
        &self,
        channel: &str,
        origin: &str,
        wait: Duration,
        reason: &str,
        openings: u32,
        credentials: Option<&str>,
    ) -> Result<()> {
        let query = query!("channel/open_circuit", Durable, [TEXT, TEXT, INT8, TEXT, INT4, TEXT]);
        let openings = i32::try_from(openings).unwrap_or(i32::MAX);
        self.query(query, &[&channel, &origin, &millis(wait), &reason, &openings, &credentials]).await.map(|_| ())
    }

    /// The provider is back.
    pub async fn close_circuit(&self, channel: &str, origin: &str) -> Result<()> {
        self.query(query!("channel/close_circuit", Durable, [TEXT, TEXT]), &[&channel, &origin]).await.map(|_| ())
    }

    /// Circuits that nobody needs to know of any more go; of each channel so many stay at most.
    pub async fn forget_held(&self, origins_max: usize) -> Result<()> {
        let origins_max = i32::try_from(origins_max).unwrap_or(i32::MAX);
        self.query(query!("channel/forget_held", Relaxed, [INT4]), &[&origins_max]).await.map(|_| ())
    }

    /// What waits for a channel is due now; says how many rows, at most `rows_max`.
    pub async fn hasten(&self, channel: &str, rows_max: i32) -> Result<i64> {
        let rows = self.query(query!("channel/hasten", Relaxed, [TEXT, INT4]), &[&channel, &rows_max]).await?;
        rows.first().map_or(Ok(0), |row| row.value("hastened"))
    }

    /// Whether this instance may make the probe.
    pub async fn take_probe(
        &self,
        channel: &str,
        origin: &str,
        instance: i32,
        span: Duration,
        credentials: Option<&str>,
    ) -> Result<bool> {
        let query = query!("channel/take_probe", Durable, [TEXT, TEXT, INT4, INT8, TEXT]);
        Ok(!self.query(query, &[&channel, &origin, &instance, &millis(span), &credentials]).await?.is_empty())
    }

    /// Circuits that opened under other credentials than these, by channel, are due for a probe. Says which channels
    /// have some, and how many.
    pub async fn probe_changed(&self, credentials: &BTreeMap<String, String>) -> Result<Vec<(String, i64)>> {
        let query = query!("channel/probe_changed", Durable, [TEXT_ARRAY, TEXT_ARRAY]);
        let (channels, digests): (Vec<&str>, Vec<&str>) =
            credentials.iter().map(|(channel, digest)| (channel.as_str(), digest.as_str())).unzip();
        let rows = self.query(query, &[&channels, &digests]).await?;
        rows.iter().map(|row| Ok((row.value("channel")?, row.value("circuits")?))).collect()
    }

    /// The key of this installation.
    pub async fn installation_key(&self) -> Result<SecretSlice<u8>> {
        let rows = self.query(query!("channel/read_key", Relaxed, []), &[]).await?;
        let row = rows.first().ok_or_else(|| Error::Bug("there is no row of settings".to_owned()))?;
        row.value::<Vec<u8>>(0).map(SecretSlice::from)
    }

    /// The probe said nothing: anyone may make another.
    pub async fn end_probe(&self, channel: &str, origin: &str, instance: i32) -> Result<()> {
        let query = query!("channel/end_probe", Durable, [TEXT, TEXT, INT4]);
        self.query(query, &[&channel, &origin, &instance]).await.map(|_| ())
    }
}
