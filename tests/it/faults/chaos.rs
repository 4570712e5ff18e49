//! Random kills, for a while, under traffic.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::support::instance::Instance;
use crate::support::postgres::Database;
use crate::support::provider::{Call, Reply};
use crate::support::redis::RedisServer;
use crate::support::sql::Sql;
use crate::support::verdict::notification_id;
use crate::support::world::World;

/// How long; the variable CHAOS_SECONDS says otherwise, and CHAOS_SEED repeats a run as far as chance goes.
const SECONDS: u64 = 15;
const KEYS: u32 = 20;

fn chosen(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[tokio::test]
async fn random_kills_lose_nothing_and_repeat_only_what_was_unknown() {
    let seed = chosen("CHAOS_SEED").unwrap_or_else(rand::random);
    let end = Instant::now() + Duration::from_secs(chosen("CHAOS_SECONDS").unwrap_or(SECONDS));
    println!("CHAOS_SEED={seed}");
    let mut redis = RedisServer::forgetful();
    // However often chance hits the same row, nobody gives it up. A small window, so that a burst is a backlog.
    let world = World::over(redis.url(), "stream")
        .await
        .set("queue.fallback_after", "1s")
        .set("queue.window", 160)
        .set("routes.default.max_attempts", 100);
    world.provider.answer_with(|call| match Fate::of(call) {
        Fate::Refused => Reply::status(503),
        Fate::Cut => Reply::reset(),
        Fate::Served => Reply::ok().after(Duration::from_millis(u64::from(call.body.len() as u32 * 7 % 60))),
    });
    let writing = tokio::spawn(write(world.database.clone(), StdRng::seed_from_u64(seed), end));
    let mut instances = [world.setup.spawn(), world.setup.spawn(), world.setup.spawn()];
    let kills = kill_at_random(&world, &mut instances, &mut redis, StdRng::seed_from_u64(!seed), end).await;
    let committed = writing.await.unwrap();
    keep_running(&world, &mut instances);

    let verdict = world.until_ended().await;
    println!("{committed} committed, {kills} kills, {} repeated", verdict.repeated.len());
    verdict.assert_nothing_lost().assert_duplicates_explained();
    let ended =
        "SELECT concat_ws(' ', count(*), count(*) FILTER (WHERE status = 'SENT')) FROM outboxd.notification_log";
    assert_eq!(world.value::<String>(ended).await, format!("{committed} {committed}"));
    assert_first_successes_in_order(&world);
}

/// What the provider does with a call; the ledger shows later which.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Served,
    Refused,
    Cut,
}

impl Fate {
    fn of(call: &Call) -> Fate {
        let id = notification_id(&call.webhook_id);
        match call.header("outboxd-attempt") {
            Some("1") if id % 13 == 0 => Fate::Refused,
            Some("1") if id % 29 == 0 => Fate::Cut,
            _ => Fate::Served,
        }
    }
}

/// Transactions of one to three notifications, now and then of hundreds, a third of them with a key, every tenth rolled
/// back. How many committed.
async fn write(database: Database, mut random: StdRng, end: Instant) -> i64 {
    let mut app = database.connect().await;
    let mut committed = 0;
    while Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(random.random_range(5..25))).await;
        let transaction = app.transaction().await.unwrap();
        let rows = if random.random_bool(0.03) { random.random_range(100..=400) } else { random.random_range(1..=3) };
        for _ in 0..rows {
            let key = random.random_bool(0.3).then(|| format!("k{}", random.random_range(0..KEYS)));
            let recipient = key.clone().unwrap_or_else(|| "nobody in particular".to_owned());
            let notify = "SELECT outboxd.notify('orders', $1, '{}', ordering_key => $2)";
            transaction.execute(notify, &[&recipient, &key]).await.unwrap();
        }
        if random.random_bool(0.1) {
            transaction.rollback().await.unwrap();
        } else {
            transaction.commit().await.unwrap();
            committed += rows;
        }
    }
    committed
}

/// SIGKILL for one of the instances, or for Redis, which then has forgotten everything, and may stay away for so long
/// that the instances go on without it.
async fn kill_at_random(
    world: &World,
    instances: &mut [Instance; 3],
    redis: &mut RedisServer,
    mut random: StdRng,
    end: Instant,
) -> u32 {
    let mut kills = 0;
    let mut away_until: Option<Instant> = None;
    while Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(random.random_range(400..1_600))).await;
        keep_running(world, instances);
        if away_until.is_some_and(|until| Instant::now() >= until) {
            redis.launch();
            away_until = None;
        }
        match random.random_range(0..5) {
            victim @ 0..=2 => std::mem::replace(&mut instances[victim], world.setup.spawn()).kill().await,
            _ if away_until.is_some() => continue,
            3 => {
                redis.kill();
                redis.launch();
            }
            _ => {
                redis.kill();
                away_until = Some(Instant::now() + Duration::from_millis(random.random_range(1_500..4_000)));
            }
        }
        kills += 1;
    }
    if away_until.is_some() {
        redis.launch();
    }
    kills
}

/// As a supervisor would: one that started while Redis was away has given up.
fn keep_running(world: &World, instances: &mut [Instance; 3]) {
    for instance in instances.iter_mut().filter_map(|instance| instance.has_ended().then_some(instance)) {
        *instance = world.setup.spawn();
    }
}

/// One writer wrote them, so a key's order is that of the ids.
fn assert_first_successes_in_order(world: &World) {
    let mut last: HashMap<String, i64> = HashMap::new();
    let mut served = std::collections::HashSet::new();
    for call in world.provider.ledger() {
        let (key, id) = (call.recipient(), notification_id(&call.webhook_id));
        if key.starts_with('k') && Fate::of(&call) == Fate::Served && served.insert(id) {
            let before = last.insert(key.clone(), id).unwrap_or(0);
            assert!(before < id, "{key}: {id} after {before}");
        }
    }
    assert!(!last.is_empty());
}
