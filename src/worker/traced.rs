//! The span of one call, where calls are traced.

use super::Worker;
use crate::channel::{Outcome, Outgoing};
use crate::retry::Failure;
use crate::store::claim::Claimed;
use crate::telemetry::otlp::{Call, Ended, Traced};

/// Before the call, so that the provider is told of it.
pub(super) fn begin(worker: &Worker, outgoing: &Outgoing<'_>, claimed: &Claimed, channel: &str) -> Option<Traced> {
    let call = Call {
        notification: claimed.id,
        topic: &claimed.topic,
        channel,
        attempt: outgoing.attempt,
        published_at: claimed.published_at,
    };
    worker.tracer.as_ref()?.begin(&call, outgoing.headers, outgoing.webhook_id)
}

/// After the call; without an outcome it was cut off and nobody knows.
pub(super) fn end(traced: Option<Traced>, outcome: Option<&Outcome>) {
    let Some(traced) = traced else { return };
    let (outcome, http_status, error) = match outcome {
        Some(Outcome::Sent { status, .. }) => ("sent", Some(*status), None),
        Some(Outcome::Short(shortage)) => ("refused", None, Some(shortage.name())),
        Some(Outcome::Failed(failed)) => (failed.outcome(), failed.status, Some(failed.cause.name())),
        // The end of the drain did it.
        None => (Failure::Ambiguous.name(), None, Some("cut off")),
    };
    traced.end(&Ended { outcome, http_status, error });
}
