//! graphile_worker (the Rust port) on the benchmark's work: one POST per job over keep-alive connections, a task for
//! each topic. `migrate` as first argument only creates its schema.

use std::env;
use std::sync::OnceLock;
use std::time::Duration;

use graphile_worker::{IntoTaskHandlerResult, LocalQueueConfig, TaskHandler, WorkerContext, WorkerOptions};
use serde::{Deserialize, Serialize};

const TOPICS: [&str; 20] = [
    "bench-0", "bench-1", "bench-2", "bench-3", "bench-4", "bench-5", "bench-6", "bench-7", "bench-8", "bench-9",
    "bench-10", "bench-11", "bench-12", "bench-13", "bench-14", "bench-15", "bench-16", "bench-17", "bench-18",
    "bench-19",
];

/// Where jobs go.
struct Sink {
    client: reqwest::Client,
    url: String,
    is_from_row: bool,
    has_topics: bool,
}

static SINK: OnceLock<Sink> = OnceLock::new();

#[derive(Deserialize, Serialize)]
struct Deliver<const TOPIC: usize> {
    n: i64,
    text: String,
    to: String,
}

impl<const TOPIC: usize> TaskHandler for Deliver<TOPIC> {
    const IDENTIFIER: &'static str = TOPICS[TOPIC];

    async fn run(self, ctx: WorkerContext) -> impl IntoTaskHandlerResult {
        let sink = SINK.get().expect("set before the worker runs");
        let body = serde_json::json!({
            "id": ctx.job().id(),
            "topic": Self::IDENTIFIER,
            "recipient": self.to,
            "payload": { "n": self.n, "text": self.text },
            "created_at": "2026-01-01T00:00:00.000000Z",
        });
        let url = if sink.is_from_row { &self.to } else { &sink.url };
        let mut request = sink.client.post(url).header("content-type", "application/json").body(body.to_string());
        if sink.has_topics {
            request = request.header("x-topic", Self::IDENTIFIER);
        }
        let answer = request.send().await.map_err(|error| error.to_string())?;
        match answer.status().is_success() {
            true => Ok(()),
            false => Err(answer.status().to_string()),
        }
    }
}

/// Defines the job of each topic named by its number.
macro_rules! define_topics {
    ($options:expr, $($topic:literal)*) => { $options$(.define_job::<Deliver<$topic>>())* };
}

#[tokio::main]
async fn main() {
    let database = env::var("DATABASE_URL").expect("DATABASE_URL");
    let has_topics = env::var("TOPICS").is_ok_and(|topics| topics != "1");
    let options = WorkerOptions::default()
        .concurrency(64)
        .database_url(&database)
        .max_pg_conn(10)
        .local_queue(LocalQueueConfig::default().with_size(500))
        .complete_job_batch_delay(Duration::from_millis(1))
        .fail_job_batch_delay(Duration::from_millis(1));
    let options = match has_topics {
        true => define_topics!(options, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19),
        false => define_topics!(options, 0),
    };
    let worker = options.init().await.expect("it starts");
    if env::args().nth(1).as_deref() == Some("migrate") {
        return;
    }
    let client = reqwest::Client::builder().pool_max_idle_per_host(64).build().expect("an HTTP client");
    let url = env::var("SINK_URL").expect("SINK_URL");
    let is_from_row = env::var("URL_FROM_ROW").is_ok_and(|is| is == "1");
    SINK.set(Sink { client, url, is_from_row, has_topics }).unwrap_or_else(|_| unreachable!("set once"));
    worker.run().await.expect("it runs");
}
