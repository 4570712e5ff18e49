//! Old and new binaries at once: a schema may be ahead of an instance that runs, and of one that starts.

use std::collections::HashMap;
use std::time::Duration;

use outboxd::store::command::Session;
use outboxd::store::migrate;

use crate::leader::config;
use crate::support::command::outboxd;
use crate::support::instance::Setup;
use crate::support::postgres;
use crate::support::provider::Reply;
use crate::support::sql::Sql;
use crate::support::world::{Carrier, World};

const SOON: Duration = Duration::from_secs(20);

/// What a newer binary would do to the schema of one that runs: migrations only add, and functions and views are
/// installed anew under its own version.
async fn migrate_as_a_newer_binary_would(world: &World) {
    let mut newer = world.database.connect().await;
    let version = migrate::newest() + 1;
    let begun = format!("BEGIN;
        ALTER TABLE outboxd.notification_log ADD COLUMN shade text;
        ALTER TABLE outboxd.outbox ADD COLUMN shade text;
        ALTER TABLE outboxd.attempt ADD COLUMN shade text DEFAULT 'grey';
        ALTER TABLE outboxd.instance ADD COLUMN shade text;
        ALTER TABLE outboxd.topic ADD COLUMN shade text;
        CREATE TABLE outboxd.shade (name text PRIMARY KEY);
        INSERT INTO outboxd.refinery_schema_history (version, name, applied_on, checksum) VALUES ({version}, 'add_shades', '', '0');
        COMMIT");
    newer.run(&begun).await;
    let install = newer.transaction().await.unwrap();
    for (_, sql) in migrate::FUNCTIONS.iter().chain(migrate::VIEWS) {
        install.batch_execute(sql).await.unwrap();
    }
    install.batch_execute("UPDATE outboxd.setting SET sql_installed = '99.0.0 aa'").await.unwrap();
    install.commit().await.unwrap();
}

async fn notify(world: &World, rounds: std::ops::Range<u32>) {
    for round in rounds {
        let notify = format!(
            "SELECT outboxd.notify('orders', 'k' || n || ' {round}', '{{}}', ordering_key => 'k' || n) FROM generate_series(1, 20) n"
        );
        world.run(&notify).await;
        world.insert(10).await;
    }
}

#[tokio::test]
async fn an_older_instance_delivers_on_beside_a_newer_schema_also_after_a_restart() {
    let world = World::new(Carrier::Stream).await;
    world.provider.answer_with(|call| match call.header("outboxd-attempt") {
        Some("1") if call.recipient().ends_with('3') => Reply::status(503),
        _ => Reply::ok().after(Duration::from_millis(20)),
    });
    let old = world.setup.start().await;
    notify(&world, 0..5).await;
    world.provider.wait_for(50, SOON).await;
    migrate_as_a_newer_binary_would(&world).await;
    notify(&world, 5..10).await;
    world.until_ended().await.assert_nothing_lost().assert_duplicates_explained();
    assert!(!old.has_ended());

    // A deploy in the middle of which an old pod is restarted, and a roll-back.
    let late = world.setup.start().await;
    assert_eq!(old.drain().await, 0);
    notify(&world, 10..12).await;
    let verdict = world.until_ended().await;
    verdict.assert_nothing_lost().assert_duplicates_explained();
    assert_eq!(late.drain().await, 0);
    let failed_first = "SELECT array_agg(id) FROM outboxd.notification_log WHERE recipient LIKE '%3'";
    let failed_first: Vec<i64> = world.value(failed_first).await;
    assert!(verdict.repeated.iter().all(|id| failed_first.contains(id)), "{verdict:?}");
    assert_in_order(&world);
    assert_eq!(world.count("notification_log WHERE status = 'SENT'").await, 360);
}

/// Each key's rounds came one after the other.
fn assert_in_order(world: &World) {
    let mut last: HashMap<String, u32> = HashMap::new();
    for call in world.provider.ledger() {
        if let Some((key, round)) = call.recipient().split_once(' ') {
            let round: u32 = round.parse().unwrap();
            let before = last.insert(key.to_owned(), round);
            assert!(
                before.is_none_or(|before| round == before || round == before + 1),
                "{key}: {round} after {before:?}"
            );
        }
    }
}

#[tokio::test]
async fn an_older_binary_leaves_a_newer_schema_alone_and_says_why() {
    let world = World::new(Carrier::Memory).await;
    migrate_as_a_newer_binary_would(&world).await;
    let ran = outboxd(&world.database.url(), &["migrate"], &[]).await;
    let said = ran.err;
    let (schema, binary) = (migrate::newest() + 1, migrate::newest());
    assert_eq!(ran.code, 78, "{said}");
    assert!(
        said.contains(&format!("the schema is at migration {schema}, newer than this binary, which knows {binary}")),
        "{said}"
    );
    assert!(said.contains("use a binary at least as new as the newest instance"), "{said}");
    let installed: String = world.value("SELECT sql_installed FROM outboxd.setting").await;
    assert_eq!(installed, "99.0.0 aa");
}

#[tokio::test]
async fn instances_that_start_at_once_on_an_empty_database_all_start() {
    let database = postgres::empty_database().await;
    let setup = Setup::new(&database.url()).webhook("http://127.0.0.1:9/");
    let mut instances = [setup.spawn(), setup.spawn(), setup.spawn()];
    for instance in &mut instances {
        instance.wait_for_log("\"started\"").await;
    }
    let client = database.connect().await;
    let asking = Session::open(&config(&database, &[])).await.unwrap();
    assert_eq!(migrate::schema_version(&asking).await.unwrap(), migrate::newest());
    client.until_count(3, "workers WHERE state = 'alive'").await;
}
