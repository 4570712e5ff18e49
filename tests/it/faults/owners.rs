//! Whose keys they are in Redis, while connections stand.

use std::time::Duration;

use tokio_postgres::Client;

use super::fallback::world_on;
use crate::support::redis::RedisServer;
use crate::support::sql::Sql;
use crate::support::wait;
use crate::support::world::{Carrier, World};

const SOON: Duration = Duration::from_secs(30);

async fn installation(app: &Client) -> String {
    app.value("SELECT install_id FROM outboxd.setting").await
}

#[tokio::test]
async fn after_a_flushall_under_standing_connections_the_keys_keep_their_owner() {
    for kind in ["stream", "list"] {
        for fallback_after in ["1s", "never"] {
            let server = RedisServer::forgetful();
            let first = world_on(server.url(), kind, "1s").await;
            let _running = first.setup.clone().set("queue.fallback_after", fallback_after).start().await;
            let id = installation(&first.app).await;
            let key = format!("HGET {{{}}}:v1:owner install_id", first.prefix);
            // A connection that is made after the first one writes it as well.
            for _ in 0..3 {
                server.run::<()>("FLUSHALL").await;
                wait::until("the owner is written again", async || {
                    server.run::<Option<String>>(&key).await.as_ref() == Some(&id)
                })
                .await;
            }
            let second = World::new(Carrier::Memory).await;
            second.app.run("UPDATE outboxd.setting SET install_id = 'anotherone00'").await;
            let mut refused = second.setup.clone().redis(server.url(), kind, &first.prefix).spawn();
            assert_eq!(refused.exit_code().await, 78, "{}", refused.log());
        }
    }
}

/// After a FLUSHALL another one may come first.
#[tokio::test]
async fn keys_that_another_installation_took_meanwhile_are_left_to_it() {
    for kind in ["stream", "list"] {
        let server = RedisServer::forgetful();
        let world = world_on(server.url(), kind, "1s").await;
        let mut instance = world.setup.start().await;
        world.notify(1).await;
        world.provider.wait_for(1, SOON).await;
        let owner = format!("{{{}}}:v1:owner", world.prefix);
        server.run::<i64>(&format!("HSET {owner} install_id anotherone00 database elsewhere")).await;
        instance.wait_for_log("Redis answers and is not used").await;
        assert!(instance.log().contains("are those of another installation, anotherone00"), "{}", instance.log());
        wait::until("nobody takes any more", async || {
            server.run::<String>("INFO clients").await.contains("blocked_clients:0")
        })
        .await;
        // What is theirs stays there.
        let (push, length) = if kind == "stream" { ("XADD", "XLEN") } else { ("LPUSH", "LLEN") };
        let theirs = if kind == "stream" { "* m theirs" } else { "theirs" };
        server.run::<::redis::Value>(&format!("{push} {{{}}}:v1:{kind} {theirs}", world.prefix)).await;
        world.notify(50).await;
        world.until_ended().await.assert_nothing_lost().assert_no_duplicate();
        assert_eq!(server.run::<i64>(&format!("{length} {{{}}}:v1:{kind}", world.prefix)).await, 1);
        // They are gone.
        server.run::<i64>(&format!("DEL {owner}")).await;
        instance.wait_for_log("Redis answers; deliveries go through it again").await;
        assert_eq!(instance.drain().await, 0);
    }
}
