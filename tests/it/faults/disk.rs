//! A disk that is full, under Postgres and in the sense of Redis: nothing is lost, nothing is given up, and the work
//! goes on when there is room again.

use std::time::Duration;

use crate::support::postgres;
use crate::support::provider::Reply;
use crate::support::redis::RedisServer;
use crate::support::sql::Sql;
use crate::support::world::{Carrier, World};

const SOON: Duration = Duration::from_secs(30);

/// Fills what is left of the disk. (A set-returning function in FROM would do it with temporary files, which go again.)
const FILL: &str = "INSERT INTO ballast SELECT repeat('x', 1900) FROM (SELECT generate_series(1, 1000000)) endless";
const DISK_FULL: &str = "53100";

#[tokio::test]
async fn a_full_disk_of_postgres_loses_nothing_and_what_was_called_meanwhile_is_recorded() {
    let server = postgres::start_with_small_disk(48).await;
    let world = World::on(server.migrated_database_in("small").await, Carrier::Stream).await;
    // No answer until the disk is full: then an unknown outcome is to be written into a table that has no page yet.
    world.provider.answer(Reply::hang());
    let mut instance = world.setup.start().await;
    world.notify(200).await;
    world.provider.wait_for(64, SOON).await;
    world.run("CREATE TABLE ballast (filling text)").await;
    assert_eq!(world.refused(FILL).await.code, DISK_FULL);
    world.provider.answer(Reply::ok());
    instance.wait_for_log(DISK_FULL).await;
    let many = "SELECT outboxd.notify('orders', 'refused', '{}') FROM generate_series(1, 5000)";
    assert_eq!(world.refused(many).await.code, DISK_FULL, "the app is told");
    let sent = "notification_log WHERE status = 'SENT'";
    println!("called {} times, {} SENT while the disk was full", world.provider.count(), world.count(sent).await);
    assert!(!instance.has_ended(), "it waits");

    world.run("DROP TABLE ballast").await;
    world.notify(20).await;
    world.until_ended().await.assert_nothing_lost().assert_duplicates_explained();
    assert_eq!(world.count(sent).await, 220, "nothing was given up");
}

#[tokio::test]
async fn a_redis_without_memory_holds_up_delivery_but_no_commit_and_loses_nothing() {
    let redis = RedisServer::forgetful();
    for kind in ["list", "stream"] {
        let world = World::over(redis.url(), kind).await;
        let mut instance = world.setup.start().await;
        world.notify(20).await;
        world.provider.wait_for(20, SOON).await;
        redis.run::<()>("CONFIG SET maxmemory 1").await;
        world.run("SET statement_timeout = '2s'").await;
        world.notify(100).await;
        world.insert(100).await;
        instance.wait_for_log("publishing waits").await;
        assert_eq!(world.provider.count(), 20, "{kind}");
        redis.run::<()>("CONFIG SET maxmemory 0").await;
        world.until_ended().await.assert_nothing_lost().assert_no_duplicate();
        assert_eq!(world.provider.count(), 220, "{kind}");
    }
}
