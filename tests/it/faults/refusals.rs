//! One row whose bytes or values a statement cannot take, among good ones: it is FAILED with its reason, the others
//! flow.

use std::time::Duration;

use outboxd::store::Store;
use outboxd::store::claim::{Case, Claimed};
use outboxd::store::record::{Failed, Next, Recorder, Sent};
use tokio_postgres::Client;

use super::outcomes::{failed, sent};
use crate::leader::{config, register};
use crate::support::postgres::{self, Database};
use crate::support::provider::Reply;
use crate::support::sql::Sql;
use crate::support::verdict;
use crate::support::world::{Carrier, World, message};

const SOON: Duration = Duration::from_secs(20);

/// What an owner can plant once the CHECK is gone, and how that row ends.
const BAD_ROWS: [(&str, &str); 5] = [
    ("UPDATE outboxd.notification_log SET expires_at = 'infinity' WHERE recipient = 'bad'", "SENT"),
    ("UPDATE outboxd.notification_log SET created_at = 'infinity' WHERE recipient = 'bad'", "FAILED"),
    ("UPDATE outboxd.notification_log SET created_at = '294276-01-01' WHERE recipient = 'bad'", "FAILED"),
    ("UPDATE outboxd.notification_log SET send_at = 'infinity' WHERE recipient = 'bad'", "SENT"),
    (
        "UPDATE outboxd.outbox o SET channel_attempts = 32767 FROM outboxd.notification_log l WHERE l.id = o.id AND recipient = 'bad'",
        "FAILED",
    ),
];

/// Ten rows, one bad, ten rows; committed together.
async fn plant(client: &Client, change: &str) {
    let notify = |recipient: &str, count: u32| {
        format!("SELECT outboxd.notify('orders', '{recipient}', '{{}}') FROM generate_series(1, {count});")
    };
    let all = [notify("good", 10), notify("bad", 1), notify("good", 10)].concat();
    client.run(&format!("BEGIN; {all} {change}; COMMIT")).await;
}

const ENDS: &str = "SELECT string_agg(DISTINCT recipient || ' ' || status, ', ') FROM outboxd.notification_log";

#[tokio::test]
async fn a_row_whose_values_cannot_be_taken_is_failed_and_the_others_of_its_batch_flow() {
    for (change, end) in BAD_ROWS {
        let world = World::new(Carrier::Memory).await;
        world.run("ALTER TABLE outboxd.notification_log DROP CONSTRAINT times_are_in_the_years_1_to_9999").await;
        plant(&world.app, change).await;
        let instance = world.setup.start().await;
        world.until("SELECT count(*) = 0 FROM outboxd.notification_log WHERE finished_at IS NULL").await;
        assert_eq!(world.value::<String>(ENDS).await, format!("bad {end}, good SENT"), "{change}");
        let why = "SELECT coalesce(error, '') FROM outboxd.notification_log WHERE recipient = 'bad'";
        let why: String = world.value(why).await;
        assert_eq!(
            why.contains("cannot be read") || why.contains("out of range"),
            end == "FAILED",
            "{change}: {why:?}"
        );
        assert!(!instance.has_ended());
    }
}

#[tokio::test]
async fn times_that_no_program_can_represent_keep_nobody_from_being_released_or_published() {
    let world = World::new(Carrier::Memory).await;
    world.run("ALTER TABLE outboxd.notification_log DROP CONSTRAINT times_are_in_the_years_1_to_9999").await;
    let never = "INSERT INTO outboxd.notification_log (topic, recipient, payload, send_at) VALUES
                    ('orders', 'never', '{}', 'infinity'), ('a', 'never', '{}', '294276-01-01'), ('z', 'never', '{}', 'infinity');
                 SELECT outboxd.notify(t, 'never', '{}') FROM unnest(ARRAY['orders', 'b', 'y']) t;
                 UPDATE outboxd.outbox SET retry_at = CASE WHEN topic = 'b' THEN '294276-01-01' ELSE 'infinity' END::timestamptz";
    world.run(never).await;
    let instance = world.setup.start().await;
    world.notify(10).await;
    world.insert(10).await;
    world.provider.wait_for(20, SOON).await;
    // Also what comes back with a time.
    world.provider.script([Reply::status(503)]);
    world.notify(1).await;
    world.provider.wait_for(22, SOON).await;
    world.until("SELECT count(*) = 6 FROM outboxd.notification_log WHERE finished_at IS NULL").await;
    assert!(!instance.has_ended() && !instance.log().contains("WARN"), "{}", instance.log());
}

#[tokio::test]
async fn a_row_that_cannot_be_read_and_whose_holder_died_is_failed_by_the_sweep() {
    let world = World::new(Carrier::Memory).await;
    let mut holder = world.setup.clone().failpoints("after_claim=abort").start().await;
    plant(&world.app, "SELECT 1").await;
    holder.exit_code().await;
    world.run("UPDATE outboxd.notification_log SET created_at = 'infinity' WHERE recipient = 'bad'").await;
    let _next = world.setup.start().await;
    world.until_count(0, "notification_log WHERE finished_at IS NULL").await;
    assert_eq!(world.value::<String>(ENDS).await, "bad FAILED, good SENT");
}

#[tokio::test]
async fn an_outcome_that_cannot_be_recorded_costs_its_own_row_and_no_other() {
    let database = postgres::database().await;
    let client = database.connect().await;
    let (store, instance) = (Store::open(&config(&database, &[])).unwrap(), register(&client).await);
    client.run("SELECT outboxd.notify('orders', 'r' || n, '{}') FROM generate_series(1, 9) n").await;
    let messages: Vec<_> = (1..=9).map(|id| message(id, 0)).collect();
    let cases = store.claim(&messages, instance, Duration::from_secs(60)).await.unwrap();
    let mut claimed: Vec<Box<Claimed>> = cases
        .into_iter()
        .map(|(_, case)| match case {
            Case::Claimed(claimed) => claimed,
            case => panic!("it is claimable: {case:?}"),
        })
        .collect();
    claimed.sort_unstable_by_key(|claimed| claimed.id);
    // Words that no text can hold are told without them; a record that breaks its own CHECK cannot be written at all.
    let mut failures: Vec<Failed> =
        claimed[..5].iter().map(|claimed| failed(claimed, Next::Retry(Duration::ZERO))).collect();
    failures[2].error = "\0 is no letter".to_owned();
    failures[4].response = Some("nor is \0".to_owned());
    let record = store.record_failures(&failures, instance, Recorder::Worker).await.unwrap();
    assert_eq!((record.waiting.len(), record.unusable.len()), (5, 0), "{record:?}");
    let noted = "SELECT string_agg(concat_ws(' ', notification_id, error, response), ', ' ORDER BY notification_id) FROM outboxd.attempt
                  WHERE error <> 'refused' OR response IS NOT NULL";
    assert_eq!(client.value::<String>(noted).await, "3 ? is no letter, 5 refused nor is ?");

    let mut deliveries: Vec<Sent> = claimed[5..].iter().map(|claimed| sent(claimed)).collect();
    deliveries[1].channel = "\0".into();
    let record = store.record_sent(&deliveries, instance).await.unwrap();
    let mut recorded = record.sent.clone();
    recorded.sort_unstable();
    assert_eq!((recorded, record.unusable.iter().map(|row| row.id).collect::<Vec<_>>()), (vec![6, 8, 9], vec![7]));
    store.give_up(&record.unusable).await.unwrap();
    let end = "SELECT status || ' ' || left(error, 45) FROM outboxd.notification_log WHERE id = 7";
    assert_eq!(client.value::<String>(end).await, "FAILED it was delivered, and that cannot be recorded");
    verdict::assert_rows_are_legal(&client).await;
}

#[tokio::test]
async fn a_row_whose_record_cannot_be_changed_stays_visible_and_keeps_no_other() {
    let world = World::new(Carrier::Memory).await;
    let rule = "topic_has_1_to_200_and_recipient_1_to_2048_bytes";
    world.run(&format!("ALTER TABLE outboxd.notification_log DROP CONSTRAINT {rule}")).await;
    plant(&world.app, "UPDATE outboxd.notification_log SET recipient = '' WHERE recipient = 'bad'").await;
    let altered =
        format!("ALTER TABLE outboxd.notification_log ADD CONSTRAINT {rule} CHECK (recipient <> '') NOT VALID");
    world.run(&altered).await;
    let mut instance = world.setup.start().await;
    world.until_count(20, "notification_log WHERE status = 'SENT' AND recipient = 'good'").await;
    instance.wait_for_log("neither worked with nor given up").await;
    world.notify(5).await;
    world.provider.wait_for(25, SOON).await;
    world.until_count(1, "stuck WHERE recipient = ''").await;
}

/// A session that takes any bytes for text, as damaged pages may hold: other encodings than ours are refused. The next
/// sessions are as before.
async fn connect_without_encoding(database: &Database) -> Client {
    let admin = database.connect().await;
    let encode = |encoding: &str| {
        let name = &database.name;
        format!("UPDATE pg_database SET encoding = pg_char_to_encoding('{encoding}') WHERE datname = '{name}'")
    };
    admin.run(&encode("SQL_ASCII")).await;
    let client = database.connect().await;
    admin.run(&encode("UTF8")).await;
    client
}

#[tokio::test]
async fn bytes_that_are_no_text_fail_their_row_and_no_other() {
    let world = World::new(Carrier::Memory).await;
    let careless = connect_without_encoding(&world.database).await;
    plant(&careless, "UPDATE outboxd.notification_log SET recipient = E'bad\\377' WHERE recipient = 'bad'").await;
    let instance = world.setup.start().await;
    world.until_count(0, "notification_log WHERE finished_at IS NULL").await;
    let ends =
        "SELECT string_agg(DISTINCT left(status::text, 6) || (recipient = 'good'), ', ') FROM outboxd.notification_log";
    assert_eq!(world.value::<String>(ends).await, "FAILEDfalse, SENTtrue");
    let why = "SELECT attempts || ' ' || error FROM outboxd.notification_log WHERE status = 'FAILED'";
    let why: String = world.value(why).await;
    assert!(why.starts_with("1 ") && why.contains("its row cannot be read"), "{why}");
    assert!(!instance.has_ended());
}

#[tokio::test]
async fn a_row_whose_record_was_deleted_ends_and_frees_its_key() {
    for is_claimed in [false, true] {
        let world = World::new(Carrier::Memory).await;
        let rows = "SELECT outboxd.notify('orders', r, '{}', ordering_key => 'k') FROM unnest('{bad,good}'::text[]) r;
                    DELETE FROM outboxd.notification_log WHERE recipient = 'bad'";
        world.run(rows).await;
        if is_claimed {
            let claim = "UPDATE outboxd.outbox SET state = 'processing', has_turn = true, epoch = 1, instance = 0, lease_until = now()
                          WHERE id = (SELECT min(id) FROM outboxd.outbox)";
            world.run(claim).await;
        }
        let _instance = world.setup.start().await;
        world.until_count(0, "outbox").await;
        assert_eq!(world.value::<String>(ENDS).await, "good SENT");
    }
}

#[tokio::test]
async fn an_id_that_an_app_chose_is_sent_however_low() {
    let world = World::new(Carrier::Memory).await;
    let insert = "INSERT INTO outboxd.notification_log (id, topic, recipient, payload) OVERRIDING SYSTEM VALUE
                  VALUES (-9223372036854775808, 'orders', 'lowest', '{}'), (9223372036854775807, 'orders', 'highest', '{}')";
    world.run(insert).await;
    let _instance = world.setup.start().await;
    world.until("SELECT bool_and(status = 'SENT') FROM outboxd.notification_log").await;
}
