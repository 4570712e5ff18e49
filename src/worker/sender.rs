//! One attempt: check whether it may go, call the channel, decide what follows.

use std::sync::Arc;
use std::time::{Duration, Instant};

use metrics::{Counter, Histogram, SharedString, counter, histogram};
use tokio_util::sync::CancellationToken;

use super::buffer::Destination;
use super::contents::{self, Contents};
use super::dispatcher::{NO_ROUTE_WAIT, Permits};
use super::payloads::Payloads;
use super::recorder::{Acks, Done, Finished};
use super::{Worker, circuits, traced};
use crate::channel::availability::{Held, May, PAUSED_WAIT};
use crate::channel::circuit::Pass;
use crate::channel::failover::{Provider, Route};
use crate::channel::lookups;
use crate::channel::{Failed, Outcome, Outgoing, webhook_id};
use crate::failpoint;
use crate::notification::NotificationId;
use crate::queue::Delivery;
use crate::retry::{self, Decision, Failure, Position};
use crate::store::claim::{Claimed, PutBack};
use crate::store::record;
use crate::telemetry::statistics::Called;

/// Behind the others that wait for the same circuit: the next probe is another's.
const PROBED_WAIT: Duration = Duration::from_secs(1);

/// A body that there is no memory for waits with its row.
const NO_BYTES_WAIT: Duration = Duration::from_secs(1);

/// A claimed row on its way to its provider.
pub(super) struct Call {
    pub(super) claimed: Box<Claimed>,
    pub(super) delivery: Delivery,
    pub(super) acks: Acks,
    /// Where it was expected to go: the permits are for that.
    pub(super) destination: Destination,
    /// Whether its call is the one that shows whether the provider is back.
    pub(super) pass: Pass,
    pub(super) claimed_at: Instant,
    /// What payloads may take in memory.
    pub(super) payloads: Arc<Payloads>,
}

/// Makes the attempt. What it returns is to be recorded.
pub(super) async fn run(
    worker: &Worker,
    mut call: Call,
    mut permits: Permits,
    cut_off: &CancellationToken,
) -> Finished {
    let (id, token) = (call.claimed.id, call.claimed.token);
    worker.presence.call_begins();
    worker.calls.begin(id, token, call.claimed_at);
    let done = attempt(worker, &mut call, &mut permits, cut_off).await;
    worker.presence.call_ended();
    Finished { done, delivery: call.delivery, acks: call.acks }
}

async fn attempt(worker: &Worker, call: &mut Call, permits: &mut Permits, cut_off: &CancellationToken) -> Done {
    let payload = call.claimed.payload.take();
    let call = &*call;
    let claimed = &call.claimed;
    let not_called = |done| not_called(worker, call, done);
    if is_expired(call) {
        return not_called(give_up(claimed, &Arc::from(""), "expired"));
    }
    if worker.availability.topic_is_paused(&claimed.topic) {
        return not_called(release(claimed, PAUSED_WAIT, None));
    }
    let Ok(route) = worker.router.route_for(&claimed.topic) else {
        return not_called(release(claimed, NO_ROUTE_WAIT, None));
    };
    let position = route.position(claimed.route_step);
    let provider = &route.channels[position];
    if call.delivery.times_delivered > worker.deliveries_max {
        let error = format!("delivered {} times by the queue without an outcome", call.delivery.times_delivered);
        return not_called(after_failure(claimed, route, position, provider, unclaimed(error)));
    }
    let contents = match cut_off.run_until_cancelled(contents::read(worker, call, permits, payload)).await {
        Some(Ok(Some(contents))) => contents,
        // There were no bytes for it, or it could not be read: nothing was tried.
        None | Some(Ok(None)) => return not_called(release(claimed, Duration::ZERO, None)),
        Some(Err(error)) => return not_called(give_up(claimed, provider.channel.name(), &error)),
    };
    send(worker, call, permits, route, position, contents, cut_off).await
}

async fn send(
    worker: &Worker,
    call: &Call,
    permits: &mut Permits,
    route: &Route,
    position: usize,
    contents: Contents<'_>,
    cut_off: &CancellationToken,
) -> Done {
    let claimed = &call.claimed;
    let provider = &route.channels[position];
    let name = provider.channel.name();
    let Contents { payload, headers, mut bytes, read } = contents;
    let id = NotificationId(claimed.id);
    let webhook_id = webhook_id(&worker.presence.install_id(), id, claimed.created_at);
    let outgoing = Outgoing {
        id,
        webhook_id: &webhook_id,
        topic: &claimed.topic,
        recipient: &claimed.recipient,
        payload: &payload,
        headers: headers.as_deref(),
        traceparent: None,
        created_at: claimed.created_at,
        attempt: u32::try_from(claimed.attempts).unwrap_or(1),
    };
    let target = match provider.channel.target(&outgoing) {
        Ok(target) => target,
        Err(failed) => {
            attempts(name, failed.outcome()).increment(1);
            return not_called(worker, call, after_failure(claimed, route, position, provider, failed));
        }
    };
    let origin = Arc::clone(target.origin());
    // Elsewhere than expected (its route moved on, the id is another's after a restore): it starts again with the right
    // permits.
    let is_expected = |(expected, at): &(Arc<Provider>, Arc<str>)| Arc::ptr_eq(expected, provider) && *at == origin;
    // Else the answer would come when the row is not ours any more.
    let is_in_time = call.claimed_at.elapsed() + provider.timeout < worker.config.lease;
    if !call.destination.as_ref().is_some_and(is_expected) || !is_in_time {
        return not_called(worker, call, release(claimed, Duration::ZERO, None));
    }
    let traced = traced::begin(worker, &outgoing, claimed, name);
    let outgoing = Outgoing { traceparent: traced.as_ref().map(|traced| &traced.traceparent), ..outgoing };
    let request = provider.channel.request(target, &outgoing);
    // Its body says it all: nothing else of it is kept while Postgres or the provider is waited for.
    drop((payload, read));
    if request.as_ref().is_ok_and(|request| !bytes.try_resize(request.body_bytes())) {
        return not_called(worker, call, release(claimed, NO_BYTES_WAIT, None));
    }
    let pass = match call.pass {
        Pass::Normal => Pass::Normal,
        Pass::Probe => match circuits::take_probe(worker, name, &origin, provider.timeout).await {
            May::Call(pass) => pass,
            May::Wait(held) => {
                let (wait, next_step) = held.way_on(route, position);
                let waits_for = next_step.is_none().then_some(origin);
                return Done::Released(PutBack { waits_for, ..back(claimed, wait, next_step) });
            }
        },
    };
    if is_expired(call) {
        circuits::no_call_was_made(worker, name, &origin, pass).await;
        return give_up(claimed, name, "expired");
    }
    failpoint::hit("before_call").await;
    permits.start(provider.timeout);
    let called = match request {
        Ok(request) => {
            // In a box, because some kilobytes would be copied with the task otherwise.
            let calling = Box::pin(lookups::of_topic(&claimed.topic, provider.channel.call(request)));
            cut_off.run_until_cancelled(calling).await
        }
        Err(failed) => Some(Outcome::Failed(failed)),
    };
    traced::end(traced, called.as_ref());
    let Some(outcome) = called else {
        return after_failure(claimed, route, position, provider, cut_short(call.claimed_at.elapsed()));
    };
    let held = note(worker, provider, &origin, pass, &outcome).await;
    match outcome {
        Outcome::Sent { status, provider_id, .. } => Done::Sent(record::Sent {
            id: claimed.id,
            token: claimed.token,
            created_at: claimed.created_at,
            topic: Arc::clone(&claimed.topic),
            channel: Arc::clone(name),
            http_status: status,
            provider_id,
            published_at: claimed.published_at,
        }),
        Outcome::Short(shortage) => {
            let wait = worker.shortages.note(shortage.name(), Instant::now(), rand::random());
            release(claimed, wait, None)
        }
        // The others were refused as well, and it was not processed: it waits with them.
        Outcome::Failed(failed) if pass == Pass::Normal && held.is_none() && failed.is_unauthorized() => {
            match worker.availability.refuses_credentials(name, &origin) {
                Some(held) => {
                    let (wait, next_step) = held.way_on(route, position);
                    release(claimed, wait, next_step)
                }
                None => after_failure(claimed, route, position, provider, failed),
            }
        }
        Outcome::Failed(failed) => match held.filter(|_| pass == Pass::Probe) {
            Some(held) => after_probe(claimed, route, position, provider, failed, held),
            None => after_failure(claimed, route, position, provider, failed),
        },
    }
}

/// Nobody was called: if this was to be the probe, another may be.
fn not_called(worker: &Worker, call: &Call, done: Done) -> Done {
    circuits::give_back_probe(worker, call.pass, &call.destination);
    done
}

/// Counts a call. Says for how long calls are held because of it.
async fn note(worker: &Worker, provider: &Provider, origin: &Arc<str>, pass: Pass, outcome: &Outcome) -> Option<Held> {
    let channel = provider.channel.name();
    let (duration, called) = match outcome {
        // No call, and nothing that the provider could be judged by.
        Outcome::Short(_) => return circuits::on_outcome(worker, channel, origin, pass, outcome).await,
        Outcome::Sent { duration, .. } => {
            let (attempts, durations) =
                provider.delivered.get_or_init(|| (attempts(channel, "sent"), durations(channel, "sent")));
            attempts.increment(1);
            durations.record(duration.as_secs_f64());
            (*duration, Called::Sent)
        }
        Outcome::Failed(failed) => {
            attempts(channel, failed.outcome()).increment(1);
            if !failed.cause.is_before_the_call() {
                durations(channel, failed.outcome()).record(failed.duration.as_secs_f64());
            }
            (failed.duration, called(failed))
        }
    };
    worker.statistics.counts().called(channel, origin, duration, called);
    circuits::on_outcome(worker, channel, origin, pass, outcome).await
}

fn called(failed: &Failed) -> Called<'_> {
    match failed {
        Failed { cause, error, .. } if cause.is_before_the_call() => Called::Refused(error),
        Failed { failure, error, .. } if failure.is_unknown() => Called::Unknown(error),
        Failed { error, .. } => Called::Failed(error),
    }
}

/// How many attempts of a channel ended so.
fn attempts(channel: &Arc<str>, outcome: &'static str) -> Counter {
    counter!("outboxd_attempts_total", "channel" => SharedString::from(Arc::clone(channel)), "outcome" => outcome)
}

/// How long they took.
fn durations(channel: &Arc<str>, outcome: &'static str) -> Histogram {
    let channel = SharedString::from(Arc::clone(channel));
    histogram!("outboxd_attempt_duration_seconds", "channel" => channel, "outcome" => outcome)
}

/// Whether its time is over, by the database's clock at the claim and our own since.
fn is_expired(call: &Call) -> bool {
    let since = i64::try_from(call.claimed_at.elapsed().as_millis()).unwrap_or(i64::MAX);
    call.claimed.expires_in_ms.is_some_and(|left| left <= since)
}

fn release(claimed: &Claimed, wait: Duration, next_step: Option<i16>) -> Done {
    Done::Released(back(claimed, wait, next_step))
}

fn back(claimed: &Claimed, wait: Duration, next_step: Option<i16>) -> PutBack {
    PutBack { id: claimed.id, epoch: claimed.token, wait, next_step, waits_for: None }
}

/// What can never be sent.
fn give_up(claimed: &Claimed, channel: &Arc<str>, error: &str) -> Done {
    Done::Failed(record::Failed {
        id: claimed.id,
        token: claimed.token,
        created_at: claimed.created_at,
        topic: Arc::clone(&claimed.topic),
        outcome: "failed",
        error: error.to_owned(),
        http_status: None,
        channel: Arc::clone(channel),
        duration: None,
        response: None,
        provider_id: None,
        next: record::Next::GiveUp,
    })
}

fn unclaimed(error: String) -> Failed {
    Failed { failure: Failure::Transient, ..no_answer(error, Duration::ZERO) }
}

fn cut_short(duration: Duration) -> Failed {
    no_answer("cut off by the end of the drain; the provider may have it".to_owned(), duration)
}

fn no_answer(error: String, duration: Duration) -> Failed {
    Failed {
        failure: Failure::Ambiguous,
        cause: crate::channel::Cause::NoAnswer,
        status: None,
        error,
        excerpt: None,
        provider_id: None,
        retry_after: None,
        duration,
    }
}

/// A probe that left the circuit open says nothing of its notification: it waits like the others and has all its
/// attempts. One without an answer may have been delivered: it counts, so that a notification is not sent with every
/// probe.
fn after_probe(
    claimed: &Claimed,
    route: &Route,
    position: usize,
    provider: &Provider,
    failed: Failed,
    held: Held,
) -> Done {
    let is_unknown = failed.failure == Failure::Ambiguous;
    let done = after_failure(claimed, route, position, provider, failed);
    match done {
        Done::Failed(failed) if !is_unknown => {
            let next = match held.way_on(route, position) {
                (wait, None) => record::Next::Probe(wait + PROBED_WAIT),
                (_, Some(step)) => record::Next::Channel(step),
            };
            Done::Failed(record::Failed { next, ..failed })
        }
        done => done,
    }
}

fn after_failure(claimed: &Claimed, route: &Route, position: usize, provider: &Provider, failed: Failed) -> Done {
    let attempts = u32::try_from(claimed.channel_attempts).unwrap_or(1);
    let at = Position { channel: position, attempts };
    let decision = retry::decide(&route.policy, at, failed.failure, failed.retry_after, rand::random());
    Done::Failed(record::Failed {
        id: claimed.id,
        token: claimed.token,
        created_at: claimed.created_at,
        topic: Arc::clone(&claimed.topic),
        outcome: if failed.failure.is_unknown() { "unknown" } else { "failed" },
        error: failed.error,
        http_status: failed.status,
        channel: Arc::clone(provider.channel.name()),
        duration: Some(failed.duration),
        response: failed.excerpt,
        provider_id: failed.provider_id,
        next: match decision {
            Decision::Retry(wait) => record::Next::Retry(wait),
            Decision::NextChannel => record::Next::Channel(Route::step_after(position)),
            Decision::GiveUp => record::Next::GiveUp,
        },
    })
}
