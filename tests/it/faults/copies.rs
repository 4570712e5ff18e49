//! The database is dumped and restored, copied with its files, or moved, and started again, beside the original or not.

use std::process::Command;
use std::time::Duration;

use outboxd_throwaway::postgres::program;
use tokio_postgres::Client;

use crate::support::postgres::{self, Database};
use crate::support::provider::{Provider, Reply};
use crate::support::sql::Sql;
use crate::support::world::{Carrier, World};
use crate::support::{command, redis, verdict};

const SOON: Duration = Duration::from_secs(30);
const WAITS: &str = "SELECT phase = 'waiting' FROM outboxd.origin";
const OWN: &str = "SELECT phase = 'own' FROM outboxd.origin";

/// A database with a backlog that nobody has touched: what an app wrote while outboxd was down, after it was up once.
async fn with_backlog(world: &World) {
    let instance = world.setup.start().await;
    world.notify(1).await;
    world.provider.wait_for(1, SOON).await;
    world.until_count(0, "outbox").await;
    assert_eq!(instance.drain().await, 0);
    let keyed =
        "SELECT outboxd.notify('orders', 'k' || n, '{}', ordering_key => 'k' || n % 3) FROM generate_series(1, 30) n";
    world.notify(30).await;
    world.run(keyed).await;
    world.insert(30).await;
    let later = "SELECT outboxd.notify('orders', 'later' || n, '{}', send_at => now() + interval '3 s') FROM generate_series(1, 10) n";
    world.run(later).await;
}

/// How many notifications the backlog has.
const BACKLOG: usize = 100;

/// Dumps a database and restores it into a new one on the same server.
async fn restored(original: &Database) -> Database {
    let copy = postgres::empty_database().await;
    let (dump, load) = (program("pg_dump").unwrap(), program("psql").unwrap());
    let (from, to) = (original.url(), copy.url());
    let script = format!("{dump} '{from}' | {load} -q -v ON_ERROR_STOP=1 '{to}'");
    let ran = tokio::task::spawn_blocking(move || Command::new("sh").args(["-ec", &script]).output());
    let ran = ran.await.unwrap().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    copy
}

/// A clone of the world's database, and its own provider.
async fn clone_of(world: &World, carrier: Carrier) -> World {
    World::on(restored(&world.database).await, carrier).await
}

async fn notify(client: &Client, name: &str) {
    client.run(&format!("SELECT outboxd.notify('orders', '{name}', '{{}}')")).await;
}

fn recipients(provider: &Provider) -> Vec<String> {
    provider.ledger().iter().map(|call| call.recipient()).collect()
}

async fn adopt(database: &Database, args: &[&str]) -> command::Ran {
    command::outboxd(&database.url(), &[&["adopt"], args].concat(), &[]).await
}

#[tokio::test]
async fn a_clone_beside_its_original_sends_only_what_is_written_since() {
    let world = World::new(Carrier::Memory).await;
    with_backlog(&world).await;
    let clone = clone_of(&world, Carrier::Memory).await;
    let _cloned = (clone.setup.start().await, clone.setup.start().await);
    clone.app.until(WAITS).await;
    notify(&clone.app, "new").await;
    clone.insert(1).await;
    clone.provider.wait_for(2, SOON).await;
    let told: String = clone
        .app
        .value("SELECT level || ': ' || value || '; ' || action FROM outboxd.health WHERE name = 'origin'")
        .await;
    assert!(told.starts_with("critical: copied or moved here, noticed at"), "{told}");
    assert!(told.contains("100 notifications and 0 schedules") && told.contains("outboxd adopt --same"), "{told}");
    let why = "SELECT s.reason || '; ' || y.action FROM outboxd.stuck s, outboxd.why(s.id) y WHERE s.id = (SELECT max(id) FROM outboxd.copied)";
    let why: String = clone.app.value(why).await;
    assert!(why.starts_with("came with a copy; ") && why.contains("outboxd adopt --same"), "{why}");
    let counted = "SELECT sum(count)::bigint FROM outboxd.waiting WHERE reason = 'came with a copy'";
    assert_eq!(clone.app.value::<Option<i64>>(counted).await, Some(100));
    // Meanwhile the original sends all of it, once.
    let _original = world.setup.start().await;
    world.provider.wait_for(1 + BACKLOG, SOON).await;
    world.until_ended().await;
    assert_eq!(world.provider.count(), 1 + BACKLOG);
    let mut sent = recipients(&clone.provider);
    sent.sort();
    assert_eq!(sent, ["new", "r1"], "and the clone nothing of it");
}

/// Ten million rows take minutes. A batch is one transaction with the row of `origin` locked: whoever holds that lock
/// holds up all of it.
#[tokio::test]
async fn while_what_a_copy_brought_is_set_aside_everything_written_since_goes_out() {
    let world = World::new(Carrier::Memory).await;
    with_backlog(&world).await;
    let mut clone = clone_of(&world, Carrier::Memory).await;
    clone.app.run("SELECT outboxd._recognise()").await;
    clone.app.run("BEGIN; SELECT FROM outboxd.origin FOR UPDATE").await;
    let holder = std::mem::replace(&mut clone.app, clone.database.connect().await);
    let _instances = (clone.setup.start().await, clone.setup.start().await);
    // The first attempt fails: a retry is due later.
    clone.provider.script([Reply::status(503)]);
    for statement in [
        "SELECT outboxd.notify('orders', 'new', '{}')",
        "INSERT INTO outboxd.notification_log (topic, recipient, payload, ordering_key) SELECT 'orders', 'new', '{}', nullif('new' || n % 3, 'new0') FROM generate_series(1, 9) n",
        "SELECT outboxd.notify('orders', 'new', '{}', ordering_key => 'new' || n % 3) FROM generate_series(1, 9) n",
        "SELECT outboxd.notify('orders', 'new', '{}', send_at => now() + interval '1 s')",
        // More than a poll of the fast path takes.
        "SELECT outboxd.notify('orders', 'new', '{}') FROM generate_series(1, 3000)",
    ] {
        clone.app.run(statement).await;
    }
    let new = 1 + 9 + 9 + 1 + 3000;
    clone
        .app
        .until(&format!(
            "SELECT count(*) FILTER (WHERE status = 'SENT' AND recipient = 'new') = {new} FROM outboxd.notification_log"
        ))
        .await;
    assert_eq!(clone.app.value::<String>("SELECT phase FROM outboxd.origin").await, "setting aside");
    assert!(recipients(&clone.provider).iter().all(|name| name == "new"));
    holder.run("COMMIT").await;
    clone.app.until(WAITS).await;
    assert_eq!(clone.app.count("copied").await, i64::try_from(BACKLOG).unwrap());
    assert_eq!(clone.provider.count(), new + 1);
}

#[tokio::test]
async fn a_copy_that_is_adopted_as_the_same_sends_its_backlog_once_in_key_order() {
    let world = World::new(Carrier::Memory).await;
    with_backlog(&world).await;
    let moved = clone_of(&world, Carrier::Memory).await;
    let _instances = (moved.setup.start().await, moved.setup.start().await);
    moved.app.until(WAITS).await;
    let ran = adopt(&moved.database, &["--same"]).await;
    assert!(ran.code == 0 && ran.out.contains("all goes on"), "{ran:?}");
    moved.provider.wait_for(BACKLOG, SOON).await;
    moved.until_ended().await;
    assert_eq!(moved.provider.count(), BACKLOG);
    for key in 0..3 {
        let sent: Vec<u32> = recipients(&moved.provider)
            .iter()
            .filter_map(|name| name.strip_prefix('k')?.parse().ok())
            .filter(|n| n % 3 == key)
            .collect();
        assert!(sent.len() == 10 && sent.is_sorted(), "{sent:?}");
    }
    verdict::assert_rows_are_legal(&moved.app).await;
    // Said again it changes nothing.
    let again = adopt(&moved.database, &["--same"]).await;
    assert!(again.code == 0 && again.out.contains("nothing waits"), "{again:?}");
}

#[tokio::test]
async fn a_clone_adopted_as_new_cancels_its_backlog_and_has_an_identity_of_its_own() {
    let world = World::new(Carrier::Memory).await;
    with_backlog(&world).await;
    let schedule = "CREATE VIEW public.everybody AS SELECT 'r1' AS recipient, '{}'::jsonb AS payload;
                    GRANT USAGE ON SCHEMA public TO outboxd_audience; GRANT SELECT ON public.everybody TO outboxd_audience;
                    SELECT outboxd.create_schedule('daily', '0 9 * * *', 'Asia/Seoul', 'quiz', 'public.everybody')";
    world.run(schedule).await;
    let clone = clone_of(&world, Carrier::Memory).await;
    let identity = "SELECT s.install_id || ' ' || md5(s.signing_key) || ' ' || md5(k.secret)
                      FROM outboxd.setting s, outboxd.schedule_secret k";
    let before: String = clone.app.value(identity).await;
    assert_eq!(before, world.value::<String>(identity).await);
    // Before it is started: one command does all of it.
    let ran = adopt(&clone.database, &["--new"]).await;
    assert!(ran.code == 0 && ran.out.contains("it is a new installation"), "{ran:?}");
    let after: String = clone.app.value(identity).await;
    assert!(before.split(' ').zip(after.split(' ')).all(|(before, after)| before != after), "{before} {after}");
    let canceled = "notifications WHERE status = 'CANCELED' AND error LIKE 'came with a copy%'";
    assert_eq!(clone.app.count(canceled).await, i64::try_from(BACKLOG).unwrap());
    assert!(clone.app.value::<bool>("SELECT paused_at IS NOT NULL FROM outboxd.schedule").await);
    assert!(clone.app.value::<bool>("SELECT count(*) = 1 FROM outboxd.audit WHERE action = 'adopt'").await);
    // Said again, also while it runs, it changes nothing.
    let _instance = clone.setup.start().await;
    notify(&clone.app, "new").await;
    let again = adopt(&clone.database, &["--new"]).await;
    assert_eq!(again.code, 0, "{again:?}");
    clone.provider.wait_for(1, SOON).await;
    clone.until_ended().await;
    assert_eq!(recipients(&clone.provider), ["new"]);
    assert_eq!(clone.app.value::<String>(identity).await, after);
    let id = after.split(' ').next().unwrap().to_owned();
    assert!(clone.provider.ledger()[0].webhook_id.starts_with(&format!("ntf-{id}-")));
}

#[tokio::test]
async fn adopting_as_new_while_instances_run_cancels_what_waits() {
    let world = World::new(Carrier::Memory).await;
    with_backlog(&world).await;
    let clone = clone_of(&world, Carrier::Memory).await;
    let _instances = (clone.setup.start().await, clone.setup.start().await);
    clone.app.until(WAITS).await;
    let operator = clone.database.connect_as_member_of("outboxd_operator").await;
    operator.run("SELECT * FROM outboxd.adopt('new')").await;
    clone.app.until(OWN).await;
    clone.app.until_count(100, "notification_log WHERE status = 'CANCELED'").await;
    assert_eq!(clone.provider.count(), 0);
}

#[tokio::test]
async fn one_notification_of_a_copy_can_be_canceled_while_it_waits() {
    let world = World::new(Carrier::Memory).await;
    with_backlog(&world).await;
    let clone = clone_of(&world, Carrier::Memory).await;
    let _instance = clone.setup.start().await;
    clone.app.until(WAITS).await;
    let first = "(SELECT min(id) FROM outboxd.copied)";
    clone.app.run(&format!("SELECT outboxd.cancel({first})")).await;
    assert!(clone.app.value::<bool>("SELECT count(*) = 99 FROM outboxd.copied").await);
}

#[tokio::test]
async fn the_original_is_not_adopted_as_new_by_mistake() {
    let world = World::new(Carrier::Memory).await;
    with_backlog(&world).await;
    let ran = adopt(&world.database, &["--new"]).await;
    assert!(ran.code == 1 && ran.err.contains("--replaces"), "{ran:?}");
    let ran = adopt(&world.database, &["--new", "--replaces", "somebodyelse"]).await;
    assert!(ran.code == 1 && ran.err.contains("this is installation"), "{ran:?}");
    assert!(world.value::<bool>("SELECT count(*) > 0 FROM outboxd.outbox").await);
    // A copy of its files looks just like it: there the operator says which installation is replaced.
    let id: String = world.value("SELECT install_id FROM outboxd.setting").await;
    for _ in 0..2 {
        let ran = adopt(&world.database, &["--new", "--replaces", &id]).await;
        assert_eq!(ran.code, 0, "{ran:?}");
    }
    assert!(world.value::<bool>("SELECT count(*) = 0 FROM outboxd.outbox").await);
    assert_ne!(world.value::<String>("SELECT install_id FROM outboxd.setting").await, id);
}

/// An instance that runs on is led to another server by the same address, as after pg_upgrade.
#[tokio::test]
async fn a_copy_under_a_running_instance_is_noticed_before_it_publishes() {
    let world = World::new(Carrier::Memory).await;
    with_backlog(&world).await;
    let clone = clone_of(&world, Carrier::Memory).await;
    let way = crate::support::proxy::Proxy::start(world.database.port).await;
    let name = &clone.database.name;
    // The name of the one that it starts on.
    let admin = postgres::connect(&postgres::server().await.url("postgres")).await;
    let empty = postgres::database().await;
    let setup = clone.setup.clone().database_url(&empty.url_at(way.port()));
    let _instance = setup.start().await;
    drop(clone.app);
    let swap = format!("ALTER DATABASE {0} RENAME TO {0}_old; ALTER DATABASE {name} RENAME TO {0}", empty.name);
    way.set(crate::support::proxy::Fault::Reset);
    let cut = format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname IN ('{0}', '{name}')",
        empty.name
    );
    admin.run(&cut).await;
    for statement in swap.split("; ") {
        while admin.batch_execute(statement).await.is_err() {
            admin.run(&cut).await;
        }
    }
    way.set(crate::support::proxy::Fault::None);
    let app = empty.connect().await;
    app.until(WAITS).await;
    notify(&app, "new").await;
    clone.provider.wait_for(1, SOON).await;
    app.until_count(1, "notification_log WHERE status = 'SENT' AND recipient = 'new'").await;
    assert_eq!(recipients(&clone.provider), ["new"]);
}

#[tokio::test]
async fn two_installations_under_one_redis_prefix_are_refused() {
    let first = World::new(Carrier::Stream).await;
    let _running = first.setup.start().await;
    let second = World::new(Carrier::Memory).await;
    // Databases of tests are copies of one template.
    second.app.run("UPDATE outboxd.setting SET install_id = 'anotherone00'").await;
    for kind in ["stream", "list"] {
        let setup = second.setup.clone().redis(redis::shared().url(), kind, &first.prefix);
        let mut refused = setup.spawn();
        assert_eq!(refused.exit_code().await, 78);
        let log = refused.log();
        assert!(log.contains("are those of another installation") && log.contains("OUTBOXD_QUEUE_PREFIX"), "{log}");
    }
    // With a prefix of its own it starts.
    let _apart = second.setup.clone().redis(redis::shared().url(), "stream", &second.prefix).start().await;
    // A Redis that was emptied learns it anew.
    redis::shared().run::<i64>(&format!("DEL {{{}}}:v1:owner", first.prefix)).await;
    let again = first.setup.start().await;
    assert_eq!(again.drain().await, 0);
    assert!(redis::shared().run::<bool>(&format!("EXISTS {{{}}}:v1:owner", first.prefix)).await);
}

/// It has its original's installation until it is adopted, and would take its messages.
#[tokio::test]
async fn a_clone_uses_its_originals_redis_only_once_it_is_adopted_as_the_same() {
    let world = World::new(Carrier::Stream).await;
    with_backlog(&world).await;
    let mut moved = clone_of(&world, Carrier::Stream).await;
    moved.setup = moved.setup.redis(redis::shared().url(), "stream", &world.prefix).set("queue.fallback_after", "1s");
    let instance = moved.setup.start().await;
    moved.app.until(WAITS).await;
    // What is written since goes out without it.
    notify(&moved.app, "new").await;
    moved.provider.wait_for(1, SOON).await;
    assert!(instance.log().contains("outboxd adopt --same"), "{}", instance.log());
    assert_eq!(adopt(&moved.database, &["--same"]).await.code, 0);
    moved.provider.wait_for(1 + BACKLOG, SOON).await;
    moved.app.until("SELECT bool_and(fallback_since IS NULL) FROM outboxd.instance WHERE stopped_at IS NULL AND heartbeat_at > now() - ttl").await;
    let install: String = moved.app.value("SELECT install_id FROM outboxd.setting").await;
    let owner: Vec<String> = redis::shared().run(&format!("HVALS {{{}}}:v1:owner", world.prefix)).await;
    assert!(owner.contains(&install), "{owner:?}");
    let database: String = moved.app.value("SELECT outboxd._database()").await;
    assert!(owner.contains(&database), "{owner:?}");
}

/// A server that was copied with its files while the original runs, and takes writes: a promoted standby, or a snapshot of
/// the disk.
async fn promoted(world: &World) -> (postgres::Server, World) {
    let server = postgres::start_standby(world.database.port).await;
    let app = server.promote(&world.database.name).await;
    drop(app);
    let database = Database { port: server.port, name: world.database.name.clone() };
    let copy = World::on(database, Carrier::Memory).await;
    (server, copy)
}

#[tokio::test]
async fn a_promoted_standby_is_no_clone() {
    let primary = postgres::start("").await;
    let world = World::on(primary.migrated_database().await, Carrier::Memory).await;
    with_backlog(&world).await;
    let (_standby, copy) = promoted(&world).await;
    let _instance = copy.setup.start().await;
    copy.provider.wait_for(BACKLOG, SOON).await;
    copy.until_ended().await;
    assert!(copy.app.value::<bool>("SELECT phase = 'own' AND noticed_at IS NULL FROM outboxd.origin").await);
}

#[tokio::test]
async fn a_copy_of_the_files_is_adopted_by_hand_before_it_is_started() {
    let primary = postgres::start("").await;
    let world = World::on(primary.migrated_database().await, Carrier::Memory).await;
    with_backlog(&world).await;
    let (_server, copy) = promoted(&world).await;
    let id: String = copy.app.value("SELECT install_id FROM outboxd.setting").await;
    let unsaid = adopt(&copy.database, &["--new"]).await;
    assert!(unsaid.code == 1 && unsaid.err.contains(&format!("--replaces {id}")), "{unsaid:?}");
    let ran = adopt(&copy.database, &["--new", "--replaces", &id]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    let _instance = copy.setup.start().await;
    notify(&copy.app, "new").await;
    copy.provider.wait_for(1, SOON).await;
    copy.until_ended().await;
    assert_eq!(recipients(&copy.provider), ["new"]);
}
