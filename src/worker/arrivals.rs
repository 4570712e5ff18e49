//! Sorts what was taken into lines. What cannot start within a second goes back to Postgres, unclaimed.
//!
//! Where messages go is mostly known. Where the URL comes from the row it is read beside the dispatcher, which starts
//! others meanwhile.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::buffer::{Buffer, Destination, Line, Taken};
use super::destinations;
use super::dispatcher::{Dispatcher, NO_ROUTE_WAIT};
use super::put_back::GoesBack;
use super::recorder::Acks;
use super::taker::Batch;
use crate::channel::availability::Held;
use crate::queue::Delivery;

/// Messages whose destinations were read.
pub(super) struct Arrivals {
    pub(super) messages: Vec<(Delivery, Destination)>,
    pub(super) acks: Acks,
}

impl Dispatcher {
    /// Lets those in whose destinations are known, and has the others' read.
    pub(super) fn let_in(self: &Arc<Self>, buffer: &mut Buffer, batch: Batch) {
        let Batch { deliveries, acks } = batch;
        let (messages, unread) = destinations::known(&self.worker, deliveries);
        if !unread.is_empty() {
            buffer.expect(unread.len());
            let (dispatcher, acks, shutdown) = (Arc::clone(self), acks.clone(), self.shutdown.clone());
            self.calls.spawn(async move {
                shutdown.run_until_cancelled(destinations::read(&dispatcher, unread, &acks)).await;
            });
        }
        self.sort(buffer, Arrivals { messages, acks });
    }

    /// Those that were expected.
    pub(super) fn let_in_read(self: &Arc<Self>, buffer: &mut Buffer, arrivals: Arrivals) {
        buffer.have_come(arrivals.messages.len());
        self.sort(buffer, arrivals);
    }

    /// Sorts messages into lines; what cannot start within a second goes back.
    fn sort(self: &Arc<Self>, buffer: &mut Buffer, arrivals: Arrivals) {
        let Arrivals { messages, acks } = arrivals;
        // Mostly a batch is of one topic for one destination: what holds for the first holds for those that follow.
        let (mut back, mut same) = (Vec::new(), Vec::new());
        let mut arrivals = messages.into_iter().peekable();
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
        let (limits, concurrency) = (&provider.limits, worker.config.concurrency);
        let mut late = taken.split_off(limits.left(topic, now).min(taken.len()));
        let per_second = limits.per_second(topic, &origin, concurrency, now);
        late.extend(buffer.join(destination.clone(), taken, per_second));
        back.extend(
            late.into_iter().map(|late| later(limits.promise(topic, &origin, concurrency, now), late, &destination)),
        );
    }

    /// Puts back what was to start within a second and cannot any more: calls that hang show it with time.
    pub(super) fn shorten(self: &Arc<Self>, buffer: &mut Buffer) {
        let (worker, now) = (&self.worker, Instant::now());
        let (availability, concurrency) = (&worker.availability, worker.config.concurrency);
        let shares = availability.shares();
        // What may stay of a topic, and of a topic on a channel.
        let mut left: HashMap<Arc<str>, usize> = HashMap::new();
        let mut left_there: HashMap<(Arc<str>, Arc<str>), usize> = HashMap::new();
        let keep = |line: &Line| {
            let left = left.entry(Arc::clone(&line.topic)).or_insert_with(|| shares.per_second(&line.topic, now));
            let mut kept = line.messages.len().min(*left);
            if let Some((provider, origin)) = &line.destination {
                let limits = &provider.limits;
                let there = (Arc::clone(&line.topic), Arc::clone(provider.channel.name()));
                let left_there =
                    left_there.entry(there).or_insert_with(|| limits.per_second_of_topic(&line.topic, now));
                kept = kept.min(*left_there).min(limits.per_second(&line.topic, origin, concurrency, now));
                *left_there -= kept;
            }
            *left -= kept;
            kept
        };
        let back = |line: &Line, taken| {
            let of_line = line
                .destination
                .as_ref()
                .map(|(provider, origin)| provider.limits.promise(&line.topic, origin, concurrency, now));
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
