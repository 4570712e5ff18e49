//! What waits at a limit: which one, until when, and that it is no alarm while somebody can know its end.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio_postgres::Client;

use super::{RELAY_LAG, age};
use crate::dashboards;
use crate::support::command::outboxd;
use crate::support::instance::Instance;
use crate::support::postgres;
use crate::support::provider::{Provider, Reply};
use crate::support::sql::Sql;
use crate::support::world::{Carrier, World};

/// One instance that relays and works, and what it reports of limits and shares.
async fn reporting(limits: &str, shares: &str) -> Client {
    let client = postgres::database().await.connect().await;
    let written = "INSERT INTO outboxd.route VALUES ('default', 0, 'push'), ('hooks', 0, 'hook');
        INSERT INTO outboxd.instance (ttl, pid, roles, queue_kind, host, version) VALUES ('1 h', 1, '{relay,worker}', 'memory', 'web-1', '1')";
    client.run(written).await;
    report(&client, 1, limits, shares).await;
    client
}

/// An instance reports them, for as long as a test takes.
async fn report(client: &Client, instance: i32, limits: &str, shares: &str) {
    let told = "INSERT INTO outboxd.instance_report (instance, clock_skew_ms, topics, reported_at, limits, shares)
                VALUES ($1, 0, '{default}', now() + interval '10 min', $2::text::jsonb, $3::text::jsonb)
                ON CONFLICT (instance) DO UPDATE SET limits = excluded.limits, shares = excluded.shares";
    client.execute(told, &[&instance, &limits, &shares]).await.unwrap();
}

async fn notify(client: &Client, topic: &str, rows: i32) {
    let notify = "SELECT outboxd.notify($1, 'r', '{}') FROM generate_series(1, $2)";
    client.execute(notify, &[&topic, &rows]).await.unwrap();
}

async fn snapshot(client: &Client) {
    client.run("UPDATE outboxd.snapshot SET taken_at = '-infinity'; SELECT outboxd._take_snapshot()").await;
}

/// The alerts of deploy/ that would fire, by what an instance shows and by the checks as they are now: it reads those
/// every half a minute.
async fn firing(client: &Client, instance: &mut Instance) -> Vec<String> {
    let age = instance.metric("outboxd_oldest_unpublished_age_seconds", &[]).await;
    let mut levels = BTreeMap::from([("outboxd_oldest_unpublished_age_seconds".to_owned(), age)]);
    let checks = "SELECT name, array_position('{ok,warn,critical}', level) - 1 FROM outboxd.health";
    for row in client.query(checks, &[]).await.unwrap() {
        let series = format!("outboxd_health_level{{check=\"{}\"}}", row.get::<_, &str>(0));
        levels.insert(series, f64::from(row.get::<_, i32>(1)));
    }
    dashboards::firing(|series| levels.get(series).copied())
}

#[tokio::test]
async fn a_campaign_at_its_rate_limit_is_well_and_its_end_is_told() {
    let world = World::new(Carrier::Memory).await;
    let mut instance = world.setup.clone().set("channels.webhook.rate_limit", "50/s").start().await;
    world.notify(400).await;
    world.until("SELECT count(*) > 0 FROM outboxd.waiting WHERE limited_by = 'rate_limit'").await;
    world.notify(600).await;
    age(&world.app, "5 min").await;
    let counted =
        "SELECT count(*) > 500 AND min(c.taken_at) > now() - interval '1 s' FROM outboxd.outbox, outboxd.snapshot c";
    world.until(counted).await;
    let told: String = world.value(RELAY_LAG).await;
    assert!(told.starts_with("ok: 0 rows ready"), "{told}");
    assert!(told.contains("at the rate_limit of webhook, until about"), "{told}");
    let end = "SELECT extract(epoch FROM max(expected_end))::float8 FROM outboxd.waiting WHERE reason = 'at its limit' AND limited_by = 'rate_limit'";
    let end: f64 = world.value(end).await;
    // Of one that has never been in the worker: its place, and when it starts.
    let fresh =
        "SELECT id FROM outboxd.outbox WHERE state = 'ready' AND retry_at IS NULL ORDER BY seq OFFSET 100 LIMIT 1";
    let fresh: i64 = world.value(fresh).await;
    let why = format!("SELECT explanation FROM outboxd.why({fresh})");
    let why: String = world.value(&why).await;
    assert!(why.starts_with("webhook is at its rate_limit (50 calls a second); "), "{why}");
    let start = format!("SELECT extract(epoch FROM until)::float8 FROM outboxd.why({fresh})");
    let start: f64 = world.value(&start).await;
    let lag = "SELECT ready_unpublished || ' ' || oldest_age FROM outboxd.outbox_lag";
    assert_eq!(world.value::<String>(lag).await, "0 00:00:00");
    assert_eq!(firing(&world.app, &mut instance).await, [""; 0]);
    let doctor = outboxd(&world.database.url(), &["doctor"], &[]).await;
    assert_eq!(doctor.code, 0, "{}", doctor.all());
    world.until_count(0, "outbox").await;
    let ended = "SELECT extract(epoch FROM max(finished_at))::float8 FROM outboxd.notification_log";
    let ended: f64 = world.value(ended).await;
    let started =
        format!("SELECT extract(epoch FROM finished_at)::float8 FROM outboxd.notification_log WHERE id = {fresh}");
    let started: f64 = world.value(&started).await;
    println!("the end was told {:.1} s, the start {:.1} s before it came", ended - end, started - start);
    assert!((ended - end).abs() < 5.0, "the end was told {} s before it came", ended - end);
    // What was put back goes before it or after it: by turns at the worst.
    assert!(started - start < 3.0, "the start was told {} s before it came", started - start);
    assert!(start < end + 1.0, "its start was told {} s after the end of all", start - end);
}

#[tokio::test]
async fn what_waits_for_a_free_call_is_well_and_its_end_is_told() {
    let world = World::new(Carrier::Memory).await;
    world.provider.answer(Reply::ok().after(Duration::from_millis(500)));
    let _instance = world.setup.clone().set("worker.concurrency", 4).start().await;
    world.notify(200).await;
    age(&world.app, "5 min").await;
    world.until("SELECT count(*) > 0 FROM outboxd.waiting WHERE limited_by = 'concurrency'").await;
    let told: String = world.value(RELAY_LAG).await;
    assert!(told.starts_with("ok: 0 rows ready"), "{told}");
    assert!(told.contains(" at worker.concurrency, for webhook, until about "), "{told}");
    let doctor = outboxd(&world.database.url(), &["doctor"], &[]).await;
    assert_eq!(doctor.code, 0, "{}", doctor.all());
}

#[tokio::test]
async fn a_topic_that_has_its_share_of_the_calls_is_told_apart_from_too_few_calls() {
    let world = World::new(Carrier::Memory).await;
    let hanging = Provider::start();
    hanging.answer(Reply::ok().after(Duration::from_secs(2)));
    let setup = world.setup.clone().set("worker.concurrency", 16).url_from_the_row();
    let _instance = setup.set("channels.webhook.max_in_flight_per_origin", 16).start().await;
    let notify = "SELECT outboxd.notify('tenant', $1, '{}') FROM generate_series(1, 300)";
    world.app.execute(notify, &[&hanging.url("/hook")]).await.unwrap();
    age(&world.app, "5 min").await;
    world.until("SELECT count(*) > 0 FROM outboxd.waiting WHERE limited_by = 'share of topic'").await;
    let shown = "SELECT string_agg(DISTINCT concat_ws(' ', topic, reason, limited_by, expected_end > now()), ', ')
                   FROM outboxd.waiting WHERE limited_by IS NOT NULL";
    assert_eq!(world.value::<String>(shown).await, "tenant at its limit share of topic t");
    let told: String = world.value(RELAY_LAG).await;
    assert!(told.starts_with("ok: 0 rows ready"), "{told}");
    assert!(told.contains(" at the share of topic tenant, until about "), "{told}");
    let why = "SELECT w.explanation FROM outboxd.outbox o, outboxd.why(o.id) w WHERE o.state = 'ready' LIMIT 1";
    let why: String = world.value(why).await;
    assert!(why.starts_with("tenant has its share of the calls that the instances may have under way ("), "{why}");
    assert_eq!(hanging.most_at_once(), 13, "three are left to others");
}

#[tokio::test]
async fn of_several_limits_the_one_that_an_operator_can_do_most_about_is_told() {
    let client = reporting(r#"{"push": ["concurrency", 10], "hook": ["max_in_flight_per_origin", null]}"#, "{}").await;
    let other = "INSERT INTO outboxd.instance (ttl, pid, roles, queue_kind, host, version) VALUES ('1 h', 2, '{relay,worker}', 'memory', 'web-2', '1')";
    client.run(other).await;
    for topic in ["orders", "tenant", "hooks"] {
        notify(&client, topic, 2).await;
    }
    client.run("UPDATE outboxd.outbox SET waits_for = 'https://a', retry_at = now() WHERE id = 5").await;
    let told = "SELECT concat_ws(' ', topic, reason, limited_by, per_second) FROM outboxd._waits ORDER BY 1";
    let first = ["hooks at its limit max_in_flight_per_origin", "hooks waiting for the relay"];
    for (limits, shares, orders, tenant) in [
        ("{}", "{}", "concurrency 10", "concurrency 10"),
        ("{}", r#"{"tenant": 7}"#, "concurrency 10", "share of topic 7"),
        (r#"{"push": ["rate_limit", 50]}"#, r#"{"tenant": 7}"#, "rate_limit 60", "rate_limit 60"),
        (r#"{"push": ["max_in_flight", 5]}"#, "{}", "max_in_flight 15", "max_in_flight 15"),
    ] {
        report(&client, 2, limits, shares).await;
        let wanted = [format!("orders at its limit {orders}"), format!("tenant at its limit {tenant}")];
        let all: Vec<&str> = first.into_iter().chain(wanted.iter().map(String::as_str)).collect();
        assert_eq!(client.values::<String>(told).await, all, "{limits} {shares}");
    }
}

/// In each quarter of the last hour so many came, and so many went.
async fn an_hour_of(client: &Client, quarters: [(i32, i32); 4]) {
    client.run("DELETE FROM outboxd.statistics_minute").await;
    for (quarter, (came, went)) in (1..).zip(quarters) {
        let minute = format!(
            "INSERT INTO outboxd.statistics_minute (minute, seq_first, seq_last, sent)
             VALUES (date_trunc('minute', now()) - {quarter} * interval '15 min' + interval '10 min', {quarter}000000, {quarter}000000 + {came}, {went})"
        );
        client.run(&minute).await;
    }
}

#[tokio::test]
async fn a_line_without_an_end_or_that_grows_for_an_hour_is_a_warning_and_no_more() {
    let rate = r#"{"push": ["rate_limit", 10]}"#;
    let client = reporting(rate, "{}").await;
    notify(&client, "orders", 300).await;
    age(&client, "2 h").await;
    let is = async |wanted: &str, why: &str| {
        let told: String = client.value(RELAY_LAG).await;
        assert!(told.starts_with(wanted), "{why}: {told}");
        told
    };
    is("ok: 0 rows ready, the oldest for 0.0 s; 300 at the rate_limit of push, until about", "its end is known").await;
    an_hour_of(&client, [(400, 300); 4]).await;
    let told = is("warn: 0 rows ready", "more came than went in each quarter").await;
    assert!(told.contains("; for an hour more has come than gone → ") && told.contains("raise the limit"), "{told}");
    an_hour_of(&client, [(400, 300), (400, 300), (300, 300), (400, 300)]).await;
    is("ok: 0 rows ready", "not in each quarter").await;
    an_hour_of(&client, [(400, 300), (9_000, 300), (400, 300), (400, 300)]).await;
    is("ok: 0 rows ready", "what came waits elsewhere").await;
    an_hour_of(&client, [(300, 400); 4]).await;
    report(&client, 1, r#"{"push": ["max_in_flight", null]}"#, "{}").await;
    let told = is("warn: 0 rows ready", "nobody knows its end").await;
    assert!(told.contains("300 at the max_in_flight of push, and nobody can know until when → "), "{told}");
    age(&client, "9 min").await;
    is("ok: 0 rows ready", "that is nothing yet").await;
    report(&client, 1, "{}", "{}").await;
    is("critical: 300 rows ready", "nothing holds them, and nobody publishes them").await;
}

#[tokio::test]
async fn a_message_that_waits_for_a_slow_rate_is_at_its_limit_and_the_queue_is_well() {
    let world = World::new(Carrier::Memory).await;
    let _instance = world.setup.clone().set("channels.webhook.rate_limit", "5/h").start().await;
    world.notify(10).await;
    world.until("SELECT count(*) > 0 FROM outboxd.waiting WHERE limited_by = 'rate_limit'").await;
    world.until("SELECT count(*) > 0 FROM outboxd.outbox WHERE state = 'published'").await;
    let queue = "SELECT level FROM outboxd.health WHERE name = 'queue'";
    for (waits, level) in [("11 min", "ok"), ("100 min", "ok"), ("3 h", "critical")] {
        let published =
            format!("UPDATE outboxd.outbox SET published_at = now() - interval '{waits}' WHERE state = 'published'");
        world.run(&published).await;
        assert_eq!(world.value::<String>(queue).await, level, "{waits}");
    }
}

#[tokio::test]
async fn a_row_starts_when_the_line_of_its_channel_has_come_to_it_and_never_in_the_past() {
    let client = reporting(r#"{"push": ["rate_limit", 50]}"#, "{}").await;
    // Topics take turns, so the last of each has all of them before it.
    client.run("SELECT outboxd.notify('tenant-' || n % 100, 'r', '{}') FROM generate_series(0, 9999) n").await;
    notify(&client, "small", 2).await;
    let called = "SELECT outboxd.notify('small', 'r', '{}', ordering_key => 'k');
        UPDATE outboxd.outbox SET state = 'ready', has_turn = true, retry_at = now() - interval '1 min' WHERE id = 10003;
        UPDATE outboxd.outbox SET waits_for = '', retry_at = now() + interval '1 min' WHERE id = 10002;
        UPDATE outboxd.outbox SET waits_for = '', retry_at = now() - interval '1 min' WHERE id = 9999";
    client.run(called).await;
    snapshot(&client).await;
    let told = |id: i64| {
        format!(
            "SELECT concat_ws('|', place, round(extract(epoch FROM until - now())), explanation LIKE '%before it.', explanation LIKE '%; it comes up again at %')
               FROM outboxd.why({id})"
        )
    };
    for (id, wanted) in [
        (10_000, "99|200|t|f"),
        (5_050, "50|102|t|f"),
        (10_001, "0|2|t|f"),
        // Put back, or the head of a key: nobody knows what goes before them.
        (10_002, "f|t"),
        (10_003, "f|f"),
        (9_999, "f|f"),
    ] {
        assert_eq!(client.value::<String>(&told(id)).await, wanted, "{id}");
    }
    client.run("UPDATE outboxd.snapshot SET taken_at = now() - interval '2 min'").await;
    assert_eq!(client.value::<String>(&told(10_000)).await, "99|t|f", "of an old snapshot no time is told");
    report(&client, 1, "{}", r#"{"tenant-99": 50}"#).await;
    snapshot(&client).await;
    assert_eq!(client.value::<String>(&told(10_000)).await, "99|2|t|f", "its share is its own");
}

#[tokio::test]
async fn what_is_said_to_be_until_some_time_is_never_until_a_time_that_is_over() {
    let (_database, client) = super::of_every_reason().await;
    let changed = "UPDATE outboxd.channel_state SET held_until = now() - interval '1 s' WHERE reason = 'failures';
                   UPDATE outboxd.outbox SET retry_at = now() - interval '1 s' WHERE waits_for <> ''";
    client.run(changed).await;
    let over = "SELECT string_agg(x.id || ' ' || w.reason, ', ') FROM generate_series(1, 22) x(id), outboxd.why(x.id) w WHERE w.until <= now()";
    assert_eq!(client.value::<Option<String>>(over).await, None);
}

#[tokio::test]
async fn only_the_next_of_its_topic_is_said_to_be_published_next() {
    let client = reporting("{}", "{}").await;
    notify(&client, "orders", 1_000).await;
    notify(&client, "alone", 1).await;
    let called = "SELECT outboxd.notify('keys', 'r', '{}', ordering_key => 'k' || n) FROM generate_series(1, 3) n;
        UPDATE outboxd.outbox SET state = 'ready', has_turn = true, retry_at = now() - (2000 - id) * interval '1 ms' WHERE id IN (1002, 1003);
        UPDATE outboxd.outbox SET state = 'published', published_at = now() WHERE id = 1;
        UPDATE outboxd.notification_log SET created_at = now() + interval '1 h'";
    client.run(called).await;
    for (id, told) in [
        (2, "It is ready and is published next."),
        (3, "It is ready; 1 of its topic stands before it."),
        (1_000, "It is ready; 998 of its topic stand before it."),
        (1_001, "It is ready and is published next."),
        (1_002, "It is ready and is published next."),
        (1_003, "It is ready; 1 of its topic stands before it."),
        (1_004, "It is the first of its ordering key and gets its turn next."),
    ] {
        assert_eq!(client.value::<String>(&format!("SELECT explanation FROM outboxd.why({id})")).await, told, "{id}");
    }
}
