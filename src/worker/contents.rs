//! What is sent of a claimed row: its payload, once there are bytes for it.

use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::sync::SemaphorePermit;
use tracing::warn;

use super::Worker;
use super::dispatcher::Permits;
use super::payloads::PayloadBytes;
use super::sender::Call;
use crate::channel::CHANNEL_WIDE;

/// What is sent of a row.
pub(super) struct Contents<'a> {
    pub(super) payload: Box<RawValue>,
    pub(super) headers: Option<Box<RawValue>>,
    /// In the count for as long as the call.
    pub(super) bytes: PayloadBytes,
    /// Of a large one, until its body is made.
    pub(super) read: Option<SemaphorePermit<'a>>,
}

/// Waits until there are bytes for the payload, and reads it if it did not come along. `None`: that failed. An error: it
/// can never be sent.
pub(super) async fn read<'a>(
    worker: &Worker,
    call: &'a Call,
    permits: &mut Permits,
    payload: Option<String>,
) -> Result<Option<Contents<'a>>, String> {
    let claimed = &call.claimed;
    let channel_wide = || Arc::from(CHANNEL_WIDE);
    let origin = call.destination.as_ref().map_or_else(channel_wide, |(_, origin)| Arc::clone(origin));
    let bytes = match call.payloads.try_acquire(&claimed.topic, &origin, claimed.payload_bytes) {
        Some(bytes) => bytes,
        None => permits.wait_for(call.payloads.acquire(&claimed.topic, &origin, claimed.payload_bytes)).await,
    };
    let mut read = None;
    let payload = match payload {
        Some(payload) => payload,
        None => {
            read = call.payloads.reads.acquire().await.ok();
            match worker.store.read_payload(claimed.id, claimed.created_at).await {
                Ok(Some(payload)) => payload,
                // Its next claim tells.
                Ok(None) => return Ok(None),
                Err(error) => {
                    warn!(%error, id = claimed.id, "a large payload could not be read; its row goes back");
                    return Ok(None);
                }
            }
        }
    };
    let headers = claimed.headers.clone().map(parse).transpose()?;
    Ok(Some(Contents { payload: parse(payload)?, headers, bytes, read }))
}

fn parse(json: String) -> Result<Box<RawValue>, String> {
    RawValue::from_string(json).map_err(|error| format!("not JSON: {error}"))
}
