//! Sorts what was taken into lines. What cannot start within a second goes back to Postgres, unclaimed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::buffer::{Buffer, Destination, Line, Taken};
use super::destinations;
use super::dispatcher::{Dispatcher, NO_ROUTE_WAIT};
use super::put_back::GoesBack;
use super::taker::Batch;
use crate::channel::availability::Held;

impl Dispatcher {
    /// Sorts a batch into lines; what cannot start within a second goes back.
    pub(super) async fn let_in(self: &Arc<Self>, buffer: &mut Buffer, batch: Batch) {
        let Batch { deliveries, acks } = batch;
        let destinations = destinations::find(&self.worker, &deliveries).await;
        // Mostly a batch is of one topic for one destination: what holds for the first holds for those that follow.
        let (mut back, mut same) = (Vec::new(), Vec::new());
        let mut arrivals = deliveries.into_iter().zip(destinations).peekable();
        while let Some((delivery, destination)) = arrivals.next() {
            let topic = Arc::clone(&delivery.message.topic);
            same.push(Taken { delivery, acks: acks.clone() });
            let goes_on =
                arrivals.peek().is_some_and(|(next, to)| next.message.topic == topic && is_same(to, &destination));
            if !goes_on {
                self.let_in_same(buffer, &topic, destination, std::mem::take(&mut same), &mut back);
            }
        }
        self.put_back(back);
    }

    /// Messages of one topic for one destination.
    fn let_in_same(
        &self,
        buffer: &mut Buffer,
        topic: &Arc<str>,
        destination: Destination,
        taken: Vec<Taken>,
        back: &mut Vec<GoesBack>,
    ) {
        let worker = &self.worker;
        if worker.availability.topic_is_paused(topic) {
            // The relay does not scan them before the topic is resumed.
            back.extend(taken.into_iter().map(|taken| (taken, Duration::ZERO, None, None)));
            return;
        }
        if worker.router.route_for(topic).is_err() {
            back.extend(taken.into_iter().map(|taken| (taken, NO_ROUTE_WAIT, None, None)));
            return;
        }
        if let Some((provider, origin)) = &destination
            && let Some(held) = worker.availability.held_for(provider.channel.name(), origin)
        {
            back.extend(taken.into_iter().map(|taken| self.while_held(taken, held, origin)));
            return;
        }
        let (shares, now) = (worker.availability.shares(), Instant::now());
        let mut taken = taken;
        let late = taken.split_off(shares.left(topic, now).min(taken.len()));
        back.extend(late.into_iter().map(|late| later(shares.promise(topic, now), late, &destination)));
        let Some((provider, origin)) = destination.clone() else {
            buffer.join(destination, taken, usize::MAX);
            return;
        };
        let concurrency = worker.config.concurrency;
        let per_second = provider.limits.per_second(&origin, concurrency, now);
        for late in buffer.join(destination.clone(), taken, per_second) {
            back.push(later(provider.limits.promise(&origin, concurrency, now), late, &destination));
        }
    }

    /// Puts back what was to start within a second and cannot any more: calls that hang show it with time.
    pub(super) fn shorten(self: &Arc<Self>, buffer: &mut Buffer) {
        let (worker, now) = (&self.worker, Instant::now());
        let (availability, concurrency) = (&worker.availability, worker.config.concurrency);
        let shares = availability.shares();
        let mut left: HashMap<Arc<str>, usize> = HashMap::new();
        let keep = |line: &Line| {
            let left = left.entry(Arc::clone(&line.topic)).or_insert_with(|| shares.per_second(&line.topic, now));
            let of_line = line
                .destination
                .as_ref()
                .map_or(usize::MAX, |(provider, origin)| provider.limits.per_second(origin, concurrency, now));
            let kept = line.messages.len().min(of_line).min(*left);
            *left -= kept;
            kept
        };
        let back = |line: &Line, taken| {
            let of_line =
                line.destination.as_ref().map(|(provider, origin)| provider.limits.promise(origin, concurrency, now));
            later(shares.promise(&line.topic, now).max(of_line.unwrap_or_default()), taken, &line.destination)
        };
        let back = buffer.shorten(keep, back);
        self.put_back(back);
    }

    /// A held channel: wait for it, or go on with the next.
    pub(super) fn while_held(&self, taken: Taken, held: Held, origin: &Arc<str>) -> GoesBack {
        let message = &taken.delivery.message;
        let Ok(route) = self.worker.router.route_for(&message.topic) else { return (taken, held.wait, None, None) };
        let (wait, next_step) = held.way_on(route, route.position(message.route_step));
        let waits_for = next_step.is_none().then(|| Arc::clone(origin));
        (taken, wait, next_step, waits_for)
    }
}

/// For its destination, or for a share of the calls.
fn later(wait: Duration, taken: Taken, destination: &Destination) -> GoesBack {
    let waits_for = destination.as_ref().map(|(_, origin)| Arc::clone(origin));
    (taken, wait, None, waits_for)
}

fn is_same(one: &Destination, other: &Destination) -> bool {
    match (one, other) {
        (Some((one, origin)), Some((other, at))) => Arc::ptr_eq(one, other) && origin == at,
        (None, None) => true,
        _ => false,
    }
}
