//! The span of one call, where calls are traced.

use std::sync::Arc;

use super::Worker;
use crate::channel::{Outcome, Outgoing};
use crate::retry::Failure;
use crate::store::claim::Claimed;
use crate::telemetry::otlp::{Begun, Call};

/// Before the call, so that the provider is told of it.
pub(super) fn begin(worker: &Worker, outgoing: &Outgoing<'_>) -> Option<Begun> {
    worker.tracer.as_ref()?.begin(outgoing.headers, outgoing.webhook_id)
}

/// After the call; without an outcome it was cut off and nobody knows.
pub(super) fn end(
    worker: &Worker,
    begun: Option<Begun>,
    claimed: &Claimed,
    channel: &Arc<str>,
    outcome: Option<&Outcome>,
) {
    let (Some(tracer), Some(begun)) = (&worker.tracer, begun) else { return };
    let (name, http_status, error) = match outcome {
        Some(Outcome::Sent { status, .. }) => ("sent", Some(*status), None),
        Some(Outcome::Failed(failed)) => (failed.outcome(), failed.status, Some(failed.cause.name())),
        // The end of the drain did it.
        None => (Failure::Ambiguous.name(), None, Some("cut off")),
    };
    let call = Call {
        notification: claimed.id,
        topic: Arc::clone(&claimed.topic),
        channel: Arc::clone(channel),
        attempt: u32::try_from(claimed.attempts).unwrap_or(1),
        published_at: claimed.published_at,
        outcome: name,
        http_status,
        error,
    };
    tracer.end(begun, &call);
}
