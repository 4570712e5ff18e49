//! Leader leases that one instance does at a time: taken once, moved over, and of no use to a former owner.

use std::time::Duration;

use nix::sys::signal::Signal;
use outboxd::config::{Config, Sources, load};
use outboxd::store::Store;
use outboxd::store::instance::InstanceId;
use outboxd::store::leader::Acquired;
use outboxd::store::leader::LeaderLease;
use outboxd::upkeep::retention;
use tokio_postgres::Client;

use crate::support::instance::Setup;
use crate::support::postgres::{self, Database};
use crate::support::sql::Sql;

const LEASE: Duration = Duration::from_secs(60);

/// The configuration of an instance on this database, with these keys set.
pub fn config(database: &Database, set: &[(&str, &str)]) -> Config {
    let mut sources = Sources { overrides: vec![("database_url".into(), database.url())], ..Sources::default() };
    sources.overrides.extend(set.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
    load(&sources).unwrap_or_else(|errors| panic!("{errors}")).config
}

/// An instance as the database knows it, alive for a minute.
pub async fn register(client: &Client) -> i32 {
    client
        .value(
            "INSERT INTO outboxd.instance (ttl, pid, roles, queue_kind, host, version)
         VALUES ('1 minute', 1, '{scheduler}', 'memory', 'test', '0') RETURNING id",
        )
        .await
}

/// `name` held by a new instance for a minute.
pub async fn held(store: &Store, client: &Client, name: &'static str) -> (LeaderLease, i32) {
    let id = register(client).await;
    let mut lease = LeaderLease::new(store.clone(), InstanceId::new(id), name, LEASE);
    assert_eq!(lease.hold().await.unwrap(), Some(id));
    (lease, id)
}

async fn database_and_store() -> (Client, Store) {
    let database = postgres::database().await;
    (database.connect().await, Store::open(&config(&database, &[])).unwrap())
}

#[tokio::test]
async fn of_many_at_once_one_takes_the_lease_and_keeps_it() {
    let (client, store) = database_and_store().await;
    let mut instances = Vec::new();
    for _ in 0..16 {
        instances.push(register(&client).await);
    }
    let takes = instances.iter().map(|id| store.acquire_leader_lease("events", *id, LEASE));
    let taken = futures_util::future::join_all(takes).await;
    let news: Vec<usize> = (0..16).filter(|n| *taken[*n].as_ref().unwrap() == Acquired::New).collect();
    assert_eq!(news.len(), 1, "{taken:?}");
    for (n, id) in instances.iter().enumerate() {
        let expected = if n == news[0] { Acquired::Kept } else { Acquired::Elsewhere };
        assert_eq!(store.acquire_leader_lease("events", *id, LEASE).await.unwrap(), expected);
    }
}

#[tokio::test]
async fn a_leader_lease_moves_over_when_it_is_over_or_its_owner_is_gone() {
    let (client, store) = database_and_store().await;
    let owners = [register(&client).await, register(&client).await, register(&client).await, register(&client).await];
    for owner in owners {
        assert_eq!(store.acquire_leader_lease("events", owner, LEASE).await.unwrap(), Acquired::New);
        assert_eq!(
            store.acquire_leader_lease("events", register(&client).await, LEASE).await.unwrap(),
            Acquired::Elsewhere
        );
        let end = match owner {
            owner if owner == owners[0] => {
                "UPDATE outboxd.leader_lease SET until = clock_timestamp() WHERE name = 'events'".to_owned()
            }
            owner if owner == owners[1] => {
                format!("UPDATE outboxd.instance SET heartbeat_at = now() - interval '61 s' WHERE id = {owner}")
            }
            owner if owner == owners[2] => format!("UPDATE outboxd.instance SET stopped_at = now() WHERE id = {owner}"),
            owner => format!("DELETE FROM outboxd.instance WHERE id = {owner}"),
        };
        client.run(&end).await;
    }
    store.acquire_leader_lease("events", register(&client).await, LEASE).await.unwrap();
    assert!(client.value::<bool>("SELECT owner > 4 FROM outboxd.leader_lease WHERE name = 'events'").await);
}

#[tokio::test]
async fn a_former_owner_that_wakes_up_late_changes_nothing() {
    let (client, store) = database_and_store().await;
    let (_, former) = held(&store, &client, retention::LEASE).await;
    let written = "INSERT INTO outboxd.instance (ttl, pid, roles, queue_kind, host, version, stopped_at)
                   SELECT '1 s', 1, '{}', 'list', 'old', '0', now() - interval '2 days' FROM generate_series(1, 3)";
    client.run(written).await;
    client.run("UPDATE outboxd.leader_lease SET until = clock_timestamp() WHERE name = 'retention'").await;
    let old = "UPDATE outboxd.instance SET started_at = now() - interval '1 hour'";
    let kept = Duration::from_secs(86_400);
    let late = store.delete_instances(former, kept).await.unwrap();
    assert_eq!((late.is_caught_up, late.deleted), (None, 0), "the lease was over");
    let (_, owner) = held(&store, &client, retention::LEASE).await;
    let late = store.delete_instances(former, kept).await.unwrap();
    assert_eq!((late.is_caught_up, late.deleted), (None, 0), "somebody else has it");
    assert_eq!(store.release_leader_lease(retention::LEASE, former).await.unwrap(), ());
    let now = store.delete_instances(owner, kept).await.unwrap();
    assert_eq!((now.is_caught_up, now.deleted), (Some(true), 0), "it has just started: the sweep comes first");
    client.run(old).await;
    let now = store.delete_instances(owner, kept).await.unwrap();
    assert_eq!((now.is_caught_up, now.deleted), (Some(true), 2), "the one that saw the most of the queue stays");
}

#[tokio::test]
async fn a_leader_lease_does_not_change_hands_in_the_middle_of_a_statement() {
    let (client, store) = database_and_store().await;
    let (_, _) = held(&store, &client, "events").await;
    client.run("UPDATE outboxd.leader_lease SET until = clock_timestamp() WHERE name = 'events'").await;
    let next = register(&client).await;
    client.run("BEGIN").await;
    client.run("SELECT FROM outboxd.leader_lease WHERE name = 'events' FOR KEY SHARE").await;
    assert_eq!(store.acquire_leader_lease("events", next, LEASE).await.unwrap(), Acquired::Elsewhere);
    client.run("COMMIT").await;
    assert_eq!(store.acquire_leader_lease("events", next, LEASE).await.unwrap(), Acquired::New);
}

#[tokio::test]
async fn the_leases_of_a_killed_a_stopped_and_a_drained_instance_move_over() {
    let database = postgres::database().await;
    let client = database.connect().await;
    let setup = Setup::new(&database.url()).webhook("http://127.0.0.1:9/");
    let owned_by = |id: i32| {
        format!(
            "SELECT count(DISTINCT owner) = 1 AND min(owner) = {id} FROM outboxd.leader_lease
              WHERE name IN ('retention', 'schedules') AND until > clock_timestamp()"
        )
    };
    let first = setup.start().await;
    client.until(&owned_by(1)).await;
    let second = setup.start().await;
    first.kill().await;
    client.until(&owned_by(2)).await;
    let third = setup.start().await;
    second.signal(Signal::SIGSTOP);
    client.until(&owned_by(3)).await;
    second.signal(Signal::SIGCONT);
    let _fourth = setup.start().await;
    assert_eq!(third.drain().await, 0);
    let wanted =
        "SELECT bool_and(coalesce(owner IN (2, 4, 5) AND until > clock_timestamp(), false)) FROM outboxd.leader_lease
         WHERE name IN ('retention', 'schedules')";
    client.until(wanted).await;
}
