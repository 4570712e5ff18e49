//! How long it takes until everything is delivered once the parts are healthy again.

use std::time::Duration;

use tokio_postgres::Client;

use crate::support::postgres;
use crate::support::provider::Reply;
use crate::support::redis::RedisServer;
use crate::support::sql::Sql;
use crate::support::world::{Carrier, World};

const SOON: Duration = Duration::from_secs(20);
/// For a busy machine: a sweep that takes long rests up to 5 s.
const SLACK_S: f64 = 5.0;

#[tokio::test]
async fn i8_everything_recovers_within_its_time_once_the_parts_are_healthy_again() {
    let times = tokio::join!(missed_publish(), dead_worker(), redis_lost(), postgres_restarted());
    let times: [(&str, f64, f64); 4] = times.into();
    println!("recovered: {times:.1?}");
    for (what, took, limit) in times {
        assert!(took < limit, "{what} took {took:.1} s of at most {limit:.1}");
    }
}

/// The database's clock: from now on all is well.
async fn healthy(app: &Client) {
    app.run("CREATE TABLE healthy AS SELECT clock_timestamp() AS at").await;
}

/// Seconds until the last row was delivered.
async fn recovered(world: &World, app: &Client) -> f64 {
    crate::support::verdict::until_ended(app, &world.provider)
        .await
        .assert_nothing_lost()
        .assert_duplicates_explained();
    app.value(
        "SELECT extract(epoch FROM max(l.finished_at) - min(h.at))::float8 FROM outboxd.notification_log l, healthy h",
    )
    .await
}

/// Within republish_after, here 1 s, and a sweep.
async fn missed_publish() -> (&'static str, f64, f64) {
    let world = World::new(Carrier::Stream).await;
    let mut stopped = world.setup.clone().failpoints("after_reserve=hang").roles("producer,relay").start().await;
    world.notify(50).await;
    stopped.wait_for_log("failpoint hit").await;
    let _other = world.setup.start().await;
    healthy(&world.app).await;
    ("a missed publish", recovered(&world, &world.app).await, 1.0 + 1.0 + SLACK_S)
}

/// Within the heartbeat's TTL, here 3 s, and a sweep.
async fn dead_worker() -> (&'static str, f64, f64) {
    let world = World::new(Carrier::Stream).await;
    world.provider.answer(Reply::hang());
    let dies = world.setup.start().await;
    world.notify(50).await;
    world.provider.wait_for(50, SOON).await;
    let _other = world.setup.start().await;
    dies.kill().await;
    world.provider.answer(Reply::ok());
    healthy(&world.app).await;
    ("a dead worker's work", recovered(&world, &world.app).await, 3.0 + 1.0 + SLACK_S)
}

async fn redis_lost() -> (&'static str, f64, f64) {
    let mut redis = RedisServer::forgetful();
    let world = World::over(redis.url(), "stream").await;
    let _instance = world.start_in_the_middle(Duration::from_millis(50)).await;
    redis.kill();
    redis.launch();
    healthy(&world.app).await;
    ("a lost Redis", recovered(&world, &world.app).await, 10.0)
}

async fn postgres_restarted() -> (&'static str, f64, f64) {
    let mut server = postgres::start("fsync = on").await;
    let world = World::on(server.migrated_database().await, Carrier::Stream).await;
    let _instance = world.start_in_the_middle(Duration::from_millis(50)).await;
    server.stop_immediately().await;
    server.start_again().await;
    let app = world.database.connect().await;
    healthy(&app).await;
    ("a restarted Postgres", recovered(&world, &app).await, 10.0)
}
