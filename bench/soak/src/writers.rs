//! The app: sessions that write orders and, in the same transaction, ask for notifications and events.

use std::time::Duration;

use anyhow::Result;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::database::Session;
use super::evidence::{Asked, Outcome, Write};
use super::plan::Queue;
use super::providers::PROBE;
use super::world::World;

pub(super) mod draft;

use draft::{Draft, Way};

/// Sessions at the same time.
pub(super) const WRITERS: usize = 4;
/// Keys of each writer. No two writers share one, so the app serialises them.
const KEYS: u32 = 6;
/// Dedup keys in use at a time, shared by all writers, so that some race.
const DEDUP_KEYS: i64 = 12;
/// A transaction that takes longer is given up, and its session with it.
const PATIENCE: Duration = Duration::from_secs(10);
const RECONNECT_WAIT: Duration = Duration::from_millis(200);

/// How a transaction is meant to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Commit,
    Rollback,
    /// The app dies before COMMIT.
    Die,
    /// The app dies while COMMIT is under way.
    DieAtCommit,
}

/// Writes until told to stop, at `per_second`.
pub(super) async fn run(world: &World, writer: usize, per_second: f64, seed: u64, stop: &CancellationToken) {
    let mut random = StdRng::seed_from_u64(seed ^ (writer as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut session: Option<Session> = None;
    let mut next = Instant::now();
    while !stop.is_cancelled() {
        next = next.max(Instant::now() - Duration::from_secs(1))
            + Duration::from_secs_f64(random.random_range(0.5..1.5) / per_second);
        sleep_until(next).await;
        let open = match session.take() {
            Some(open) => open,
            None => match world.app().await {
                Ok(open) => open,
                Err(_) => {
                    tokio::time::sleep(RECONNECT_WAIT).await;
                    continue;
                }
            },
        };
        let drafts = drafts(world, writer, &mut random);
        let ending = match random.random_range(0..100) {
            0..6 => Ending::Rollback,
            6..8 => Ending::Die,
            8..10 => Ending::DieAtCommit,
            _ => Ending::Commit,
        };
        session = transact(world, open, &drafts, ending, Duration::ZERO).await;
    }
}

/// What one transaction asks for.
fn drafts(world: &World, writer: usize, random: &mut StdRng) -> Vec<Draft> {
    let key = format!("w{writer}-k{}", random.random_range(0..KEYS));
    let draft = Draft::new(world.number());
    match random.random_range(0..100) {
        0..30 => vec![draft.with_key(&key)],
        30..40 => {
            // A few at a time, taken by whoever comes first; some are asked for long after.
            let group = world.number() / (DEDUP_KEYS * 4);
            let dedup_key = format!("d{group}-{}", random.random_range(0..DEDUP_KEYS));
            vec![draft.with_dedup_key(&dedup_key)]
        }
        40..46 => vec![draft.by(Way::Insert)],
        46..50 => vec![draft.by(Way::Insert).with_key(&format!("{key}-insert"))],
        50..54 => vec![draft.delayed(random.random_range(500..3000))],
        54..58 => {
            let more = random.random_range(1..8);
            vec![draft.and((0..more).map(|_| world.number()))]
        }
        58..62 => vec![draft.with_key(&key), Draft::new(world.number()).with_key(&key), Draft::new(world.number())],
        62..70 if world.queue != Queue::Memory => vec![draft.by(Way::Publish).with_key(&key)],
        _ => vec![draft],
    }
}

/// One transaction, and what the app knows of its end. The session, if it is still good.
async fn transact(
    world: &World,
    session: Session,
    drafts: &[Draft],
    ending: Ending,
    stays_open: Duration,
) -> Option<Session> {
    let began = world.now();
    let written = tokio::time::timeout(PATIENCE, write(&session, drafts)).await;
    // Nothing was committed before COMMIT is sent.
    let is_written = matches!(written, Ok(Ok(())));
    if is_written {
        tokio::time::sleep(stays_open).await;
    }
    let (outcome, is_good) = match ending {
        _ if !is_written => (Outcome::RolledBack, false),
        Ending::Die => (Outcome::RolledBack, false),
        Ending::Rollback => (Outcome::RolledBack, session.client.batch_execute("ROLLBACK").await.is_ok()),
        Ending::DieAtCommit => {
            let moment = Duration::from_micros(began % 1500);
            match tokio::time::timeout(moment, session.client.batch_execute("COMMIT")).await {
                Ok(Ok(())) => (Outcome::Committed, false),
                _ => (Outcome::Unknown, false),
            }
        }
        Ending::Commit => match tokio::time::timeout(PATIENCE, session.client.batch_execute("COMMIT")).await {
            Ok(Ok(())) => (Outcome::Committed, true),
            _ => (Outcome::Unknown, false),
        },
    };
    let ended = world.now();
    let lines = drafts.iter().flat_map(|draft| draft.lines(began, ended, outcome));
    world.log().writes.extend(lines);
    is_good.then_some(session)
}

async fn write(session: &Session, drafts: &[Draft]) -> Result<(), tokio_postgres::Error> {
    session.client.batch_execute("BEGIN").await?;
    let numbers: Vec<i64> = drafts.iter().flat_map(|draft| draft.numbers.iter().copied()).collect();
    session.client.execute("INSERT INTO app.orders SELECT unnest($1::bigint[])", &[&numbers]).await?;
    for draft in drafts {
        draft.write(&session.client).await?;
    }
    Ok(())
}

/// A transaction that stays open after `notify()` and then commits.
pub(super) async fn stay_open(world: &World, lasts: Duration) -> Result<()> {
    let draft = Draft::new(world.number());
    transact(world, world.app().await?, &[draft], Ending::Commit, lasts).await;
    Ok(())
}

/// Commits one notification that every provider serves at once, however long it takes until the database lets it; its
/// number.
pub(super) async fn probe(world: &World, patience: Duration) -> Option<i64> {
    let deadline = Instant::now() + patience;
    while Instant::now() < deadline {
        let number = world.number();
        if let Ok(session) = world.app().await {
            let draft = Draft::new(number).about(PROBE);
            transact(world, session, &[draft], Ending::Commit, Duration::ZERO).await;
            let is_committed = |write: &&Write| write.number == number && write.outcome == Outcome::Committed;
            if world.log().writes.iter().rev().take(1000).any(|write| is_committed(&write)) {
                return Some(number);
            }
        }
        tokio::time::sleep(RECONNECT_WAIT).await;
    }
    None
}

impl Draft {
    /// The app's log of it.
    fn lines(&self, began: u64, ended: u64, outcome: Outcome) -> Vec<Write> {
        let asked = match self.way {
            Way::Publish => Asked::Event,
            _ => Asked::Notification { dedup_key: self.dedup_key.clone(), is_delayed: self.delay_ms > 0 },
        };
        let line = |number: &i64| Write {
            number: *number,
            asked: asked.clone(),
            key: self.key.clone(),
            began,
            ended,
            outcome,
        };
        self.numbers.iter().map(line).collect()
    }
}
