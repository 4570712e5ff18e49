//! `/version`: what runs here.
//!
//! **Guarantee.** It asks nobody. **Limit.** The schema is the one that this binary knows; `/readyz` compares it with
//! the database's.

use axum::Json;
use serde_json::{Value, json};

use crate::store::migrate;
use crate::telemetry;

pub(super) async fn show() -> Json<Value> {
    Json(json!({
        "name": "outboxd",
        "version": telemetry::VERSION,
        "commit": telemetry::COMMIT,
        "schema": migrate::newest(),
    }))
}
