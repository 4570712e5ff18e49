//! graphile_worker (the Rust port) on the benchmark's work: one POST per job over keep-alive connections.
//! `migrate` as first argument only creates its schema.

use std::sync::OnceLock;
use std::time::Duration;

use graphile_worker::{IntoTaskHandlerResult, LocalQueueConfig, TaskHandler, WorkerContext, WorkerOptions};
use serde::{Deserialize, Serialize};

static HTTP: OnceLock<(reqwest::Client, String)> = OnceLock::new();

#[derive(Deserialize, Serialize)]
struct Deliver {
    n: i64,
    text: String,
}

impl TaskHandler for Deliver {
    const IDENTIFIER: &'static str = "deliver";

    async fn run(self, ctx: WorkerContext) -> impl IntoTaskHandlerResult {
        let (client, url) = HTTP.get().expect("set before the worker runs");
        let body = serde_json::json!({
            "id": ctx.job().id(),
            "topic": "bench",
            "recipient": "device-1",
            "payload": self,
            "created_at": "2026-01-01T00:00:00.000000Z",
        });
        let request = client.post(url).header("content-type", "application/json").body(body.to_string());
        let answer = request.send().await.map_err(|error| error.to_string())?;
        match answer.status().is_success() {
            true => Ok(()),
            false => Err(answer.status().to_string()),
        }
    }
}

#[tokio::main]
async fn main() {
    let database = std::env::var("DATABASE_URL").expect("DATABASE_URL");
    let worker = WorkerOptions::default()
        .concurrency(64)
        .database_url(&database)
        .max_pg_conn(10)
        .local_queue(LocalQueueConfig::default().with_size(500))
        .complete_job_batch_delay(Duration::from_millis(1))
        .fail_job_batch_delay(Duration::from_millis(1))
        .define_job::<Deliver>()
        .init()
        .await
        .expect("it starts");
    if std::env::args().nth(1).as_deref() == Some("migrate") {
        return;
    }
    let client = reqwest::Client::builder().pool_max_idle_per_host(64).build().expect("an HTTP client");
    let url = std::env::var("SINK_URL").expect("SINK_URL");
    HTTP.set((client, url)).unwrap_or_else(|_| unreachable!("set once"));
    worker.run().await.expect("it runs");
}
