//! `/metrics`: Prometheus text.
//!
//! **Guarantee.** To ask costs no statement: what needs one was sampled before. **Limit.** Counters are of this
//! instance since its start.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use metrics::gauge;

use super::access::Caller;
use super::api::reach;
use super::problem::Problem;
use super::{Parts, Readiness};
use crate::channel::circuit::OpenReason;
use crate::telemetry::recorder;

/// The version of the text format that we write.
const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(super) async fn show(State(readiness): State<Arc<Readiness>>, caller: Caller) -> Result<Response, Problem> {
    reach::everything(&caller, "what /metrics counts")?;
    let is_up = readiness.parts_now().is_some_and(|parts| parts.store.answers());
    gauge!("outboxd_postgres_up").set(f64::from(u8::from(is_up)));
    if let Some(parts) = readiness.parts_now() {
        show_pool(parts);
        show_open_circuits(parts);
    }
    Ok(([(CONTENT_TYPE, TEXT_FORMAT)], recorder::handle().render()).into_response())
}

fn show_pool(parts: &Parts) {
    let (in_use, max) = parts.store.pool_use();
    gauge!("outboxd_database_pool_connections_in_use").set(in_use as f64);
    gauge!("outboxd_database_pool_connections_max").set(max as f64);
}

fn show_open_circuits(parts: &Parts) {
    let held = parts.availability.held();
    for name in &parts.channels {
        let is_paused = parts.availability.channel_is_paused(name);
        gauge!("outboxd_channel_paused", "channel" => name.clone()).set(f64::from(u8::from(is_paused)));
        for reason in OpenReason::ALL {
            let origins = held.iter().filter(|(channel, why)| channel == name && *why == reason).count();
            gauge!("outboxd_channel_held_origins", "channel" => name.clone(), "reason" => reason.name())
                .set(origins as f64);
        }
    }
}
