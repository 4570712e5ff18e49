//! The consumer of the app's events: it reads the stream all the time, wherever Redis is just now.

use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Result;
use redis::AsyncCommands as _;
use redis::streams::{StreamReadOptions, StreamReadReply};

use super::carrier::connect;
use super::evidence::Sighting;
use super::world::World;
use super::writers::draft::EVENT_TOPIC;

const BLOCK_MS: usize = 100;
const BATCH: usize = 500;
const RECONNECT_WAIT: Duration = Duration::from_millis(20);

/// Reads for ever; where it stands outlives connections and servers, as ids are times.
pub(super) async fn run(world: &World) {
    let mut last = "0".to_owned();
    loop {
        // Redis is away, or another one.
        let _ = read(world, &mut last).await;
        tokio::time::sleep(RECONNECT_WAIT).await;
    }
}

async fn read(world: &World, last: &mut String) -> Result<()> {
    let port = world.carrier_port.load(Ordering::Relaxed);
    let mut connection = connect(port).await?;
    let stream = format!("{{outboxd}}:v1:events:topic:{EVENT_TOPIC}");
    let options = StreamReadOptions::default().block(BLOCK_MS).count(BATCH);
    while world.carrier_port.load(Ordering::Relaxed) == port {
        let reply: Option<StreamReadReply> = connection.xread_options(&[&stream], &[last.as_str()], &options).await?;
        let entries = reply.into_iter().flat_map(|reply| reply.keys).flat_map(|key| key.ids);
        for entry in entries {
            let payload: String = entry.get("payload").unwrap_or_default();
            let payload: serde_json::Value = serde_json::from_str(&payload).unwrap_or_default();
            let number = payload["n"].as_i64().unwrap_or(0);
            world.log().sightings.push(Sighting { at: world.now(), number });
            *last = entry.id;
        }
    }
    Ok(())
}
