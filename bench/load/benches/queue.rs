//! How fast the queue carries: push, and take + ack, per second, for the three backends in batches of 1, 50 and
//! 500, one caller, beside `redis-benchmark` with one client on the same server in the same run.
//!
//! Run it with `bench/queue`.
#![allow(clippy::unwrap_used)]

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use outboxd::config::{QueueConfig, QueueKind, defaults};
use outboxd::queue::{self, Message};
use outboxd_throwaway::redis::Redis;
use secrecy::SecretString;

const BATCHES: [usize; 3] = [1, 50, 500];

/// Messages per measurement: enough for about a second or two.
fn count(batch: usize) -> usize {
    if batch == 1 { 10_000 } else { 100_000 }
}

#[tokio::main]
async fn main() {
    // `cargo test --benches` only wants to know that it builds.
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    let server = Redis::start().unwrap().expect("redis-server is installed");
    let url = SecretString::from(server.url());
    println!("{:<24}{:>8}{:>14}{:>18}", "messages/s", "batch", "push", "take + ack");
    for (name, kind) in [("memory", QueueKind::Memory), ("list", QueueKind::List), ("stream", QueueKind::Stream)] {
        for batch in BATCHES {
            let (push, take) = measure(kind, batch, &url).await;
            println!("{name:<24}{batch:>8}{push:>14.0}{take:>18.0}");
        }
    }
    for command in ["LPUSH key:{} 1234567:1:0:0:orders", "XADD stream:{} * m 1234567:1:0:0:orders"] {
        for batch in BATCHES {
            let rate = redis_benchmark(server.port(), batch, &command.replace("{}", &batch.to_string()));
            println!("{:<24}{batch:>8}{rate:>14.0}{:>18}", format!("redis-benchmark {}", &command[..5]), "");
        }
    }
}

async fn measure(kind: QueueKind, batch: usize, url: &SecretString) -> (f64, f64) {
    let count = count(batch);
    let config = QueueConfig { kind, prefix: format!("bench{batch}"), window: count as u32, ..defaults().queue };
    let queue = queue::open(&config, Some(url)).await.unwrap();
    let mut consumer = queue.consumer("bench").await.unwrap();
    let acker = consumer.acker();
    let topic: Arc<str> = Arc::from("orders");
    let message = |id| Message { id: 1_000_000 + id, epoch: 1, route_step: 0, topic: Arc::clone(&topic) };
    let messages: Vec<Message> = (0..count as i64).map(message).collect();

    let started = Instant::now();
    for batch in messages.chunks(batch) {
        queue.push(batch).await.unwrap();
    }
    let push = count as f64 / started.elapsed().as_secs_f64();

    let started = Instant::now();
    let mut left = count;
    while left > 0 {
        let taken = consumer.take(batch, Duration::from_secs(1)).await.unwrap();
        acker.ack(&taken).await.unwrap();
        left -= taken.len();
    }
    (push, count as f64 / started.elapsed().as_secs_f64())
}

/// Requests per second of one client that sends `batch` at a time.
fn redis_benchmark(port: u16, batch: usize, command: &str) -> f64 {
    let count = count(batch).to_string();
    let (port, batch) = (port.to_string(), batch.to_string());
    let mut words = vec!["-p", &port, "-c", "1", "-n", &count, "-P", &batch, "--csv"];
    words.extend(command.split(' '));
    let output = Command::new("redis-benchmark").args(&words).output().expect("redis-benchmark runs");
    let text = String::from_utf8_lossy(&output.stdout);
    // "test","rps",… on the first line, the command and its figures on the second.
    let line = text.lines().last().expect("a result");
    line.split("\",\"").nth(1).and_then(|rate| rate.parse().ok()).unwrap_or_else(|| panic!("no rate in {text}"))
}
