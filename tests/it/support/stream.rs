//! The stream of an events' topic, as a consumer finds it.

use std::time::{Duration, Instant};

use redis::streams::StreamRangeReply;

use super::redis::RedisServer;

/// An entry's event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub id: i64,
    pub key: String,
}

/// The stream's key under an instance's prefix.
pub fn key(prefix: &str, topic: &str) -> String {
    format!("{{{prefix}}}:v1:events:topic:{topic}")
}

/// Everything that is in the stream.
pub async fn read(server: &RedisServer, key: &str) -> Vec<Entry> {
    let reply: StreamRangeReply = server.run(&format!("XRANGE {key} - +")).await;
    let entry = |entry: &redis::streams::StreamId| Entry {
        id: entry.get("id").expect("an id"),
        key: entry.get("key").expect("a key"),
    };
    reply.ids.iter().map(entry).collect()
}

/// What is in the stream, once it holds at least so many events.
pub async fn wait_for(server: &RedisServer, key: &str, at_least: usize, within: Duration) -> Vec<Entry> {
    let deadline = Instant::now() + within;
    loop {
        let found = read(server, key).await;
        if found.len() >= at_least {
            return found;
        }
        assert!(Instant::now() < deadline, "{} of {at_least} events arrived within {within:?}", found.len());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The events in the order of their first arrival.
pub fn first_arrivals(entries: &[Entry]) -> Vec<i64> {
    let mut seen = std::collections::HashSet::new();
    entries.iter().map(|entry| entry.id).filter(|id| seen.insert(*id)).collect()
}
