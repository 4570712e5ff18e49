//! Where messages go, as far as can be told before they are claimed.
//!
//! A message names its topic and its position on the route, so its channel is known. Where the URL comes from the row,
//! one unlocked SELECT reads what it is made of. That is only a hint, for the limits: what is called is what the claim
//! returns.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::value::RawValue;
use tracing::debug;

use super::Worker;
use super::buffer::Destination;
use crate::channel::failover::Provider;
use crate::channel::{CHANNEL_WIDE, Outgoing};
use crate::notification::NotificationId;
use crate::queue::{Delivery, Message};
use crate::store::claim;

/// The destinations of these messages, in their order.
pub(super) async fn find(worker: &Worker, deliveries: &[Delivery]) -> Vec<Destination> {
    let providers: Vec<Option<&Arc<Provider>>> =
        deliveries.iter().map(|delivery| provider(worker, &delivery.message)).collect();
    let from_rows: HashMap<i64, &Arc<Provider>> = deliveries
        .iter()
        .zip(&providers)
        .filter_map(|(delivery, provider)| Some((delivery.message.id, (*provider)?)))
        .filter(|(_, provider)| provider.channel.calls_many_origins())
        .collect();
    let origins = read(worker, &from_rows).await;
    let channel_wide: Arc<str> = Arc::from(CHANNEL_WIDE);
    let destination = |(delivery, provider): (&Delivery, Option<&Arc<Provider>>)| {
        let provider = provider?;
        let origin = match provider.channel.calls_many_origins() {
            false => &channel_wide,
            true => origins.get(&delivery.message.id)?,
        };
        Some((Arc::clone(provider), Arc::clone(origin)))
    };
    deliveries.iter().zip(providers).map(destination).collect()
}

fn provider<'a>(worker: &'a Worker, message: &Message) -> Option<&'a Arc<Provider>> {
    let route = worker.router.route_for(&message.topic).ok()?;
    route.channels.get(route.position(message.route_step))
}

/// The origins of these rows, as far as they have one. Without an answer nothing is known: the claim tells.
async fn read(worker: &Worker, rows: &HashMap<i64, &Arc<Provider>>) -> HashMap<i64, Arc<str>> {
    let (with_payload, without): (Vec<i64>, Vec<i64>) =
        rows.keys().partition(|id| rows[id].channel.url_reads_payload());
    let mut origins = HashMap::with_capacity(rows.len());
    for (ids, payloads) in [(with_payload, true), (without, false)] {
        let each = |row: claim::Contents| {
            let origin = rows.get(&row.id).and_then(|provider| origin(provider, &row));
            origins.extend(origin.map(|origin| (row.id, origin)));
        };
        if !ids.is_empty()
            && let Err(error) = worker.store.read_destinations(&ids, payloads, each).await
        {
            debug!(%error, messages = ids.len(), "destinations are not known before the claim");
        }
    }
    origins
}

/// `None`: there is no such URL; the attempt will say why.
fn origin(provider: &Provider, row: &claim::Contents) -> Option<Arc<str>> {
    let payload: &RawValue = serde_json::from_str(row.payload.as_deref().unwrap_or("null")).ok()?;
    let headers: Option<&RawValue> = row.headers.as_deref().map(serde_json::from_str).transpose().ok()?;
    let outgoing = Outgoing {
        id: NotificationId(row.id),
        webhook_id: "",
        topic: &row.topic,
        recipient: &row.recipient,
        payload,
        headers,
        traceparent: None,
        created_at: row.created_at,
        attempt: 1,
    };
    provider.channel.target(&outgoing).ok().map(|target| Arc::clone(target.origin()))
}
