//! What is counted of what waits: one truth for every view, in a snapshot too, whatever there is of routes, keys and
//! instances.

use tokio_postgres::Client;

use outboxd::store::Store;

use crate::leader::config;
use crate::support::postgres::{self, Database};
use crate::support::sql::{Sql, rows_read};
use crate::support::wait;
use crate::support::world::{Carrier, World};

const INSTANCE: &str = "INSERT INTO outboxd.instance (ttl, pid, roles, queue_kind, host, version)
                        VALUES ('1 h', 1, '{producer,relay,worker}', 'memory', 'web-1', '1')";

async fn snapshot(client: &Client) {
    client.run("UPDATE outboxd.snapshot SET taken_at = '-infinity'; SELECT outboxd._take_snapshot()").await;
}

#[tokio::test]
async fn of_a_held_channel_every_view_counts_the_rows_that_wait_for_it_and_no_others() {
    let client = postgres::database().await.connect().await;
    client.run(INSTANCE).await;
    let written = "INSERT INTO outboxd.route VALUES ('default', 0, 'sms'), ('hooks', 0, 'hook');
        INSERT INTO outboxd.channel_state (channel, origin, held_until, reason)
        VALUES ('sms', '', now() + interval '1 min', 'failures'), ('hook', 'https://a', now() + interval '1 min', 'failures');
        SELECT outboxd.notify('quiz', 'r', '{}') FROM generate_series(1, 20);
        SELECT outboxd.notify('hooks', 'r', '{}') FROM generate_series(1, 7);
        SELECT outboxd.pause('quiz'), outboxd.pause('hooks');
        UPDATE outboxd.outbox SET waits_for = 'https://a', retry_at = now() + interval '1 min' WHERE topic = 'hooks'";
    client.run(written).await;
    let channels = "SELECT string_agg(concat_ws(' ', channel, origin, waiting), ', ' ORDER BY channel, origin NULLS FIRST) FROM outboxd.channel_health
                     WHERE circuit <> 'closed'";
    let circuits = "SELECT level || ': ' || value FROM outboxd.health WHERE name = 'circuits'";
    assert_eq!(client.value::<String>(channels).await, "hook https://a 0, sms 0");
    let told: String = client.value(circuits).await;
    assert!(told.starts_with("warn: ") && !told.contains("waiting"), "they wait for their topics: {told}");
    let called = "SELECT outboxd.resume('hooks'), outboxd.notify('orders', 'r', '{}') FROM generate_series(1, 3);
                  SELECT outboxd.notify('keys', 'r', '{}', ordering_key => 'k') FROM generate_series(1, 5)";
    client.run(called).await;
    // Of a key only the first waits for the channel.
    assert_eq!(client.value::<String>(channels).await, "hook https://a 7, sms 4");
    let told: String = client.value(circuits).await;
    assert!(told.starts_with("critical: ") && told.contains("(calls fail, 4 waiting, "), "{told}");
    let agree = "SELECT count(*) FROM (SELECT channel, sum(count) AS waiting FROM outboxd.waiting WHERE reason = 'circuit open' GROUP BY 1) w
                   FULL JOIN (SELECT channel, sum(waiting) AS waiting FROM outboxd.channel_health WHERE waiting > 0 GROUP BY 1) h USING (channel, waiting)
                  WHERE w IS NULL OR h IS NULL";
    assert_eq!(client.value::<i64>(agree).await, 0);
    // The channel as a whole holds them, whatever they were put back for.
    client.run("INSERT INTO outboxd.channel_state (channel, held_until, reason) VALUES ('hook', now() + interval '1 min', 'unauthorized')").await;
    assert_eq!(client.value::<String>(channels).await, "hook 7, hook https://a 0, sms 4");
    let why = "SELECT explanation || ' ' || action FROM outboxd.why(21)";
    let why: String = client.value(why).await;
    assert!(
        why.starts_with("The circuit of hook is open: ") && why.ends_with("outboxd.probe_channel('hook')"),
        "{why}"
    );
}

#[tokio::test]
async fn a_row_past_the_end_of_its_shortened_route_waits_for_its_last_channel() {
    let client = postgres::database().await.connect().await;
    client.run(INSTANCE).await;
    let written = "INSERT INTO outboxd.route VALUES ('default', 0, 'mail'), ('default', 1, 'letter'), ('short', 0, 'push'), ('two', 0, 'push'), ('two', 1, 'sms');
        SELECT outboxd.notify(topic, 'r', '{}') FROM unnest('{short,short,two,two,two,other,other,other}'::text[]) topic;
        UPDATE outboxd.outbox SET route_step = (ARRAY[0, 1, 0, 1, 2, 0, 1, 2])[id], retry_at = now() + interval '1 h'";
    client.run(written).await;
    let channels =
        "SELECT string_agg(w.channel, ' ' ORDER BY x.id) FROM generate_series(1, 8) x(id), outboxd.why(x.id) w";
    assert_eq!(client.value::<String>(channels).await, "push push push sms sms mail letter letter");
    client.run("SELECT outboxd.pause_channel('push'), outboxd.pause_channel('letter')").await;
    let paused = "SELECT string_agg(id::text, ' ' ORDER BY id) FROM outboxd.stuck WHERE reason = 'channel paused'";
    assert_eq!(client.value::<String>(paused).await, "1 2 3 7 8");
    let written = "INSERT INTO outboxd.channel_state (channel, held_until, reason) VALUES ('sms', now() + interval '1 h', 'failures');
        SELECT outboxd.close_circuit('sms')";
    client.run(written).await;
    let due = "SELECT string_agg(id::text, ' ' ORDER BY id) FROM outboxd.outbox WHERE retry_at <= now()";
    assert_eq!(client.value::<String>(due).await, "4 5");
}

const ORIGINS: &str = "
    INSERT INTO outboxd.route VALUES ('default', 0, 'hook'), ('default', 1, 'sms');
    INSERT INTO outboxd.channel_state (channel, origin, held_until, reason)
    SELECT 'hook', 'https://' || o, now() + interval '1 h', 'failures' FROM unnest('{a,b}'::text[]) o;
    SELECT count(outboxd.notify('orders', 'r', '{}')) FROM generate_series(1, 60);
    UPDATE outboxd.outbox SET retry_at = now() + id * interval '1 min', attempts = 1;
    UPDATE outboxd.outbox SET waits_for = 'https://b', attempts = 0 WHERE id BETWEEN 21 AND 40;
    UPDATE outboxd.outbox SET waits_for = 'https://a', attempts = 0 WHERE id BETWEEN 41 AND 55;
    UPDATE outboxd.outbox SET waits_for = 'https://a', route_step = 1 WHERE id > 55";

const DUE: &str = "SELECT concat_ws(' ', min(id), max(id), count(*)) FROM outboxd.outbox WHERE retry_at <= now()";

#[tokio::test]
async fn a_probe_of_one_origin_makes_due_what_waits_for_it_and_nothing_else() {
    let client = postgres::database().await.connect().await;
    client.run(ORIGINS).await;
    client.run("SELECT outboxd.probe_channel('hook', 'https://a')").await;
    assert_eq!(client.value::<String>(DUE).await, "41 50 10");
    client.run("SELECT outboxd.close_circuit('hook', 'https://a')").await;
    assert_eq!(client.value::<String>(DUE).await, "41 55 15");
}

#[tokio::test]
async fn a_start_with_other_credentials_makes_due_what_waits_for_each_origin() {
    let database = postgres::database().await;
    let client = database.connect().await;
    client.run(ORIGINS).await;
    let store = Store::open(&config(&database, &[])).unwrap();
    let credentials = [("hook".to_owned(), "other".to_owned())].into();
    assert_eq!(store.probe_changed(&credentials).await.unwrap(), [("hook".to_owned(), 2)]);
    let due = "SELECT string_agg(concat_ws(' ', waits_for, n), ', ' ORDER BY waits_for)
                 FROM (SELECT waits_for, count(*) AS n FROM outboxd.outbox WHERE retry_at <= now() GROUP BY 1) d";
    assert_eq!(client.value::<String>(due).await, "https://a 10, https://b 10");
}

#[tokio::test]
async fn the_routes_of_an_instance_stay_when_one_without_them_starts() {
    let world = World::new(Carrier::Memory).await;
    let only =
        |topic: &str| world.setup.clone().without("routes").set(&format!("routes.{topic}.channels"), vec!["webhook"]);
    let routes = "SELECT coalesce(string_agg(topic, ' ' ORDER BY topic), '') FROM outboxd.route";
    let mut first = only("orders").start().await;
    world.until(&format!("SELECT ({routes}) = 'orders'")).await;
    let _second = only("other").start().await;
    world.until(&format!("SELECT ({routes}) = 'orders other'")).await;
    world.run("SELECT outboxd.pause_channel('webhook')").await;
    let paused = async || first.metric("outboxd_channel_paused", &[("channel", "webhook")]).await == 1.0;
    wait::until("the pause is known", paused).await;
    world.notify(5).await;
    world.until("SELECT count(*) = 5 FROM outboxd.stuck WHERE reason = 'channel paused' AND channel = 'webhook'").await;
    // It tells of them again, should they be gone all the same.
    world.run("DELETE FROM outboxd.route WHERE topic = 'orders'").await;
    world.until(&format!("SELECT ({routes}) = 'orders other'")).await;
    assert_eq!(first.drain().await, 0);
    let _third = only("other").start().await;
    world.until(&format!("SELECT ({routes}) = 'other'")).await;
}

const BY_REASON: &str = "SELECT concat_ws(' ', reason, topic, channel, count, limited_by, round(extract(epoch FROM expected_end - counted_at)),
                                          round(extract(epoch FROM oldest) / 60)) FROM outboxd.waiting ORDER BY 1";

#[tokio::test]
async fn what_waits_is_told_by_a_snapshot_as_it_is_counted_on_the_spot() {
    let client = postgres::database().await.connect().await;
    client.run(INSTANCE).await;
    let written = "INSERT INTO outboxd.instance_report (instance, clock_skew_ms, topics, reported_at, limits, shares)
        VALUES (1, 0, '{default}', now() + interval '10 min', '{\"push\": [\"rate_limit\", 50]}', '{\"tenant\": 5}');
        INSERT INTO outboxd.route VALUES ('default', 0, 'push'), ('code', 0, 'sms'), ('tenant', 0, 'sms'), ('hooks', 0, 'hook');
        INSERT INTO outboxd.channel_state (channel, origin, held_until, reason)
        VALUES ('sms', '', now() + interval '1 h', 'unauthorized'), ('hook', 'https://a', now() + interval '1 h', 'failures');
        SELECT count(outboxd.notify((ARRAY['orders', 'mails', 'code', 'hooks'])[1 + n % 4], 'r', '{}')) FROM generate_series(0, 5999) n;
        SELECT outboxd.notify('keys', 'r', '{}', ordering_key => 'k') FROM generate_series(1, 10);
        UPDATE outboxd.outbox SET waits_for = 'https://a', retry_at = now() + interval '1 h' WHERE topic = 'hooks' AND id <= 400;
        UPDATE outboxd.notification_log SET created_at = now() - interval '5 min', send_at = now() - interval '5 min';
        INSERT INTO outboxd.notification_log (topic, recipient, payload, send_at) VALUES ('later', 'r', '{}', now() + interval '1 h')";
    client.run(written).await;
    let counted: Vec<String> = client.values(BY_REASON).await;
    assert_eq!(
        counted,
        [
            "at its limit keys push 1 rate_limit 60 5",
            "at its limit mails push 1500 rate_limit 60 5",
            "at its limit orders push 1500 rate_limit 60 5",
            "circuit open code sms 1500 5",
            "circuit open hooks hook 100 5",
            "never published hooks hook 1400 5",
            "not due yet later 1 0",
            "waiting behind key keys push 9 5",
        ]
    );
    let channels = "SELECT concat_ws(' ', channel, origin, waiting) FROM outboxd.channel_health WHERE waiting IS NOT NULL ORDER BY 1";
    let held = ["hook https://a 100", "sms 1500"];
    assert_eq!(client.values::<String>(channels).await, held);
    snapshot(&client).await;
    client.run("SELECT outboxd.notify('after', 'r', '{}')").await;
    assert!(client.value::<bool>("SELECT bool_and(counted_at < now()) FROM outboxd.waiting").await);
    assert_eq!(client.values::<String>(BY_REASON).await, counted);
    assert_eq!(client.values::<String>(channels).await, held);
    client.run("UPDATE outboxd.snapshot SET taken_at = now() - interval '61 s'").await;
    assert!(client.value::<bool>("SELECT bool_or(topic = 'after') FROM outboxd.waiting").await, "it is old");
}

/// So many rows behind one key, of which so many more have just ended; a transaction keeps what is left of them.
async fn behind_one_key(database: &Database, rows: i32, ended: i32) -> (Client, Client) {
    let (client, holder) = (database.connect().await, database.connect().await);
    client.run(INSTANCE).await;
    // The plan is made, and kept, while there is nothing.
    client.run("VACUUM ANALYZE outboxd.outbox").await;
    client.run("SELECT * FROM outboxd._count_waiting()").await;
    holder.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM outboxd.outbox").await;
    let called = format!("SELECT count(outboxd.notify('orders', 'r', '{{}}', ordering_key => 'k')) FROM generate_series(1, {rows} + {ended});
        DO $$ BEGIN FOR n IN 1..{ended} LOOP
            UPDATE outboxd.outbox SET state = 'ready', has_turn = true, retry_at = now() WHERE id = n;
            DELETE FROM outboxd.outbox WHERE id = n;
        END LOOP; END $$;
        UPDATE outboxd.outbox SET state = 'ready', has_turn = true, retry_at = now() + interval '1 h', attempts = 1 WHERE id = {ended} + 1");
    client.run(&called).await;
    (client, holder)
}

#[tokio::test]
async fn counting_50_000_rows_behind_one_key_asks_each_once_and_not_all_that_ended() {
    let database = postgres::database().await;
    let (client, _holder) = behind_one_key(&database, 50_000, 1_000).await;
    let counted = "SELECT string_agg(reason || ' ' || count, ', ' ORDER BY reason) FROM outboxd._count_waiting()";
    let read = rows_read(&client, "outbox", counted).await;
    println!("{read} rows and entries were read");
    // Each row twice by a scan, itself and the one before it by an index.
    assert!(read < 50_000 * 8, "{read} rows and entries were read");
    assert_eq!(client.value::<String>(counted).await, "waiting behind key 49999, waiting for retry 1");
    for question in ["SELECT reason FROM outboxd.stuck WHERE id = 40000", "SELECT behind FROM outboxd.why(40000)"] {
        let read = rows_read(&client, "outbox", question).await;
        assert!(read < 5_000, "{question}: {read} rows and entries were read");
    }
    assert_eq!(client.value::<i64>("SELECT behind FROM outboxd.why(40000)").await, 1_001);
}

#[tokio::test]
async fn counting_50_000_rows_beside_1_000_routes_carries_no_routes_along() {
    let client = postgres::database().await.connect().await;
    client.run(INSTANCE).await;
    let written = "INSERT INTO outboxd.instance_report (instance, clock_skew_ms, topics)
        SELECT 1, 0, array_agg('topic-' || n) FROM generate_series(1, 1000) n;
        INSERT INTO outboxd.route SELECT 'topic-' || n, 0, 'push' FROM generate_series(1, 1000) n;
        SELECT count(outboxd.notify('topic-' || n % 1001, 'r', '{}')) FROM generate_series(1, 50000) n;
        UPDATE outboxd.notification_log SET created_at = now() - interval '1 min', send_at = now() - interval '1 min'; ANALYZE";
    client.run(written).await;
    let counted = "SELECT concat_ws(' ', count(*), sum(count)) FROM outboxd._count_waiting()";
    assert_eq!(client.value::<String>(counted).await, "1001 50000");
    let routeless = "SELECT topic FROM outboxd._count_waiting() WHERE reason = 'no route'";
    assert_eq!(client.values::<String>(routeless).await, ["topic-0"]);
    // However the rows are joined: the topics of an instance are found at once, and are not part of each row.
    for joins in ["enable_mergejoin, enable_nestloop", "enable_hashjoin, enable_nestloop"] {
        let off: String = joins.split(", ").map(|join| format!("SET LOCAL {join} = off; ")).collect();
        client.run(&format!("BEGIN; {off} SET LOCAL work_mem = '64MB'")).await;
        let plan =
            "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT reason, topic FROM outboxd._wait WHERE state <> 'pending'";
        let plan: serde_json::Value = client.value(plan).await;
        client.run("ROLLBACK").await;
        assert_eq!(plan[0]["Plan"]["Temp Written Blocks"], 0, "{joins} off: {plan:#}");
    }
}
