//! What the queue tells about itself: `outboxd_queue_depth`, `outboxd_queue_in_flight`,
//! `outboxd_queue_reclaimed_total`, `outboxd_queue_losses_total`, `outboxd_queue_garbage_total`, each with the
//! label `backend`.

use metrics::{Counter, Gauge, counter, gauge};

use super::Depth;

/// How full the queue is; set by every call of `depth`.
pub(super) struct Gauges {
    waiting: Gauge,
    in_flight: Gauge,
}

impl Gauges {
    pub(super) fn new(backend: &'static str) -> Gauges {
        Gauges {
            waiting: gauge!("outboxd_queue_depth", "backend" => backend),
            in_flight: gauge!("outboxd_queue_in_flight", "backend" => backend),
        }
    }

    pub(super) fn show(&self, depth: Depth) {
        self.waiting.set(depth.waiting as f64);
        self.in_flight.set(depth.in_flight as f64);
    }
}

impl std::fmt::Debug for Gauges {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Gauges")
    }
}

/// Messages taken over from dead consumers.
pub(super) fn reclaimed(backend: &'static str) -> Counter {
    counter!("outboxd_queue_reclaimed_total", "backend" => backend)
}

/// Losses noticed.
pub(super) fn losses(backend: &'static str) -> Counter {
    counter!("outboxd_queue_losses_total", "backend" => backend)
}

/// Elements that were no message of ours and were dropped.
pub(super) fn garbage(backend: &'static str) -> Counter {
    counter!("outboxd_queue_garbage_total", "backend" => backend)
}
