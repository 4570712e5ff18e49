//! Where messages go, as far as can be told before they are claimed.
//!
//! A message names its topic and its position on the route, so its channel is known. Where the URL comes from the row,
//! one unlocked SELECT reads what it is made of. That is only a hint, for the limits: what is called is what the claim
//! returns.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::value::RawValue;
use tracing::debug;

use super::Worker;
use super::arrivals::Arrivals;
use super::buffer::Destination;
use super::dispatcher::Dispatcher;
use super::recorder::Acks;
use crate::channel::failover::Provider;
use crate::channel::{CHANNEL_WIDE, Outgoing};
use crate::notification::NotificationId;
use crate::queue::{Delivery, Message};
use crate::store::claim::{Contents, LARGE_BYTES, LARGE_PAYLOADS_MAX};

/// A message whose URL comes from its row.
type Unread = (Delivery, Arc<Provider>);

/// The messages whose destinations are known, and the others.
pub(super) fn known(worker: &Worker, deliveries: Vec<Delivery>) -> (Vec<(Delivery, Destination)>, Vec<Unread>) {
    let (mut known, mut unread) = (Vec::with_capacity(deliveries.len()), Vec::new());
    let channel_wide: Arc<str> = Arc::from(CHANNEL_WIDE);
    for delivery in deliveries {
        match provider(worker, &delivery.message) {
            Some(provider) if provider.channel.calls_many_origins() => {
                let provider = Arc::clone(provider);
                unread.push((delivery, provider));
            }
            provider => {
                let destination = provider.map(|provider| (Arc::clone(provider), Arc::clone(&channel_wide)));
                known.push((delivery, destination));
            }
        }
    }
    (known, unread)
}

fn provider<'a>(worker: &'a Worker, message: &Message) -> Option<&'a Arc<Provider>> {
    let route = worker.router.route_for(&message.topic).ok()?;
    route.channels.get(route.position(message.route_step))
}

/// Reads the destinations of these messages: with few statements, and those last that take long.
pub(super) async fn read(dispatcher: &Dispatcher, mut unread: Vec<Unread>, acks: &Acks) {
    let (mut large, mut alike) = (Vec::new(), Vec::new());
    while let Some((_, provider)) = unread.first() {
        let fields = provider.channel.url_fields().map(<[String]>::to_vec);
        let is_alike = |(_, provider): &mut Unread| provider.channel.url_fields() == fields.as_deref();
        alike.extend(unread.extract_if(.., is_alike));
        let permit = dispatcher.payloads.destinations.acquire().await;
        let left = read_alike(dispatcher, std::mem::take(&mut alike), LARGE_BYTES, acks).await;
        drop(permit);
        large.extend(left);
    }
    while !large.is_empty() {
        let fields = large[0].1.channel.url_fields().map(<[String]>::to_vec);
        let is_alike = |(_, provider): &mut Unread| provider.channel.url_fields() == fields.as_deref();
        alike.extend(large.extract_if(.., is_alike).take(LARGE_PAYLOADS_MAX));
        let _read = dispatcher.payloads.reads.acquire().await;
        read_alike(dispatcher, std::mem::take(&mut alike), usize::MAX, acks).await;
    }
}

/// Reads those whose URLs are made of the same, and hands them on. Returns those with longer payloads. Without an
/// answer nothing is known: the claim tells.
async fn read_alike(dispatcher: &Dispatcher, mut unread: Vec<Unread>, payload_max: usize, acks: &Acks) -> Vec<Unread> {
    let Some((_, first)) = unread.first() else { return unread };
    let ids: Vec<i64> = unread.iter().map(|(delivery, _)| delivery.message.id).collect();
    let read = dispatcher.worker.store.read_destinations(&ids, first.channel.url_fields(), payload_max).await;
    let rows = read.unwrap_or_else(|error| {
        debug!(%error, messages = ids.len(), "destinations are not known before the claim");
        Vec::new()
    });
    let longer: HashSet<i64> = rows.iter().filter(|row| row.payload.is_none()).map(|row| row.id).collect();
    let longer: Vec<Unread> = unread.extract_if(.., |(delivery, _)| longer.contains(&delivery.message.id)).collect();
    let rows: HashMap<i64, Contents> = rows.into_iter().map(|row| (row.id, row)).collect();
    let destination = |(delivery, provider): Unread| {
        let origin = rows.get(&delivery.message.id).and_then(|row| origin(&provider, row));
        (delivery, origin.map(|origin| (provider, origin)))
    };
    let messages: Vec<(Delivery, Destination)> = unread.into_iter().map(destination).collect();
    // Without a dispatcher the process is ending.
    let _ = dispatcher.arrivals.send(Arrivals { messages, acks: acks.clone() }).await;
    longer
}

/// `None`: there is no such URL; the attempt will say why.
fn origin(provider: &Provider, row: &Contents) -> Option<Arc<str>> {
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
