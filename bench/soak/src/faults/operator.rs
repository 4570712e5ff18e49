//! An operator at work: not a fault, but in the way of everything.

use std::time::Duration;

use anyhow::{Context, Result};
use tokio_postgres::Client;

use super::Ongoing;
use crate::database::OPERATOR;
use crate::evidence::Subject;
use crate::providers::CHANNELS;
use crate::world::World;
use crate::writers::draft::TOPICS;

const WAITING: &str = "SELECT id, payload ->> 'n', created_at FROM outboxd.notifications
    WHERE status IN ('PENDING', 'QUEUED', 'PROCESSING') AND topic <> 'probe' ORDER BY id DESC LIMIT 15";
const ENDED: &str = "SELECT n.id, n.payload ->> 'n', n.created_at FROM outboxd.notifications n
    WHERE n.status IN ('FAILED', 'CANCELED') ORDER BY n.id DESC LIMIT 20";

/// A session with a server that froze answers nothing.
const PATIENCE: Duration = Duration::from_secs(20);
const TRY_AGAIN: Duration = Duration::from_millis(200);

/// One of the things that operators do.
pub(super) async fn act(ongoing: &Ongoing<'_>) -> Result<()> {
    let patience = ongoing.fault.lasts + PATIENCE;
    tokio::time::timeout(patience, act_patiently(ongoing)).await.context("the operator gave up")?
}

async fn act_patiently(ongoing: &Ongoing<'_>) -> Result<()> {
    let world = ongoing.world;
    let dice = ongoing.fault.dice as usize;
    let operator = world.session(OPERATOR).await?;
    match dice % 4 {
        0 => {
            let canceled = cancel(&operator.client).await;
            ongoing.lasts().await;
            canceled
        }
        1 => retry(world, &operator.client).await,
        2 => {
            let topic = TOPICS[dice / 4 % TOPICS.len()];
            operator.client.query("SELECT outboxd.pause($1)", &[&topic]).await?;
            drop(operator);
            ongoing.lasts().await;
            again(world, &format!("SELECT outboxd.resume('{topic}')")).await
        }
        _ => {
            let channel = CHANNELS[dice / 4 % CHANNELS.len()];
            operator.client.query("SELECT outboxd.pause_channel($1)", &[&channel]).await?;
            drop(operator);
            ongoing.lasts().await;
            again(world, &format!("SELECT outboxd.resume_channel('{channel}')")).await
        }
    }
}

async fn cancel(operator: &Client) -> Result<()> {
    for row in operator.query(WAITING, &[]).await? {
        operator.query("SELECT outboxd.cancel($1)", &[&row.get::<_, i64>(0)]).await?;
    }
    Ok(())
}

/// What was given up, or taken back, is sent after all.
async fn retry(world: &World, operator: &Client) -> Result<()> {
    for row in operator.query(ENDED, &[]).await? {
        // Its turn among those of its key is over.
        if let Some(number) = row.get::<_, Option<&str>>(1).and_then(|text| text.parse().ok()) {
            world.log().retried.insert(Subject::Number(number));
        }
        operator.query("SELECT outboxd.retry($1)", &[&row.get::<_, i64>(0)]).await?;
    }
    Ok(())
}

/// Until the database takes it.
async fn again(world: &World, sql: &str) -> Result<()> {
    loop {
        let done = match world.session(OPERATOR).await {
            Ok(operator) => {
                let acting = operator.client.batch_execute(sql);
                matches!(tokio::time::timeout(PATIENCE / 4, acting).await, Ok(Ok(())))
            }
            Err(_) => false,
        };
        if done {
            return Ok(());
        }
        tokio::time::sleep(TRY_AGAIN).await;
    }
}
