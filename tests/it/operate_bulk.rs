//! Retrying and canceling many at once: a dry run first, small ones at once, big ones in batches that can be watched
//! and stopped; and nothing that happened since is touched.

use tokio_postgres::Client;

use crate::support::postgres;
use crate::support::sql::Sql;
use crate::support::world::{Carrier, World};

/// Dead letters of topic `dead`, one failed each second up to now.
async fn kill(client: &Client, count: i32) {
    let sql = format!(
        "INSERT INTO outboxd.notification_log (topic, recipient, payload, status, finished_at, failed_at, error, http_status, channel)
         SELECT 'dead', 'r' || n, '{{}}', 'FAILED', now() - ({count} - n) * interval '1 s', now() - ({count} - n) * interval '1 s',
                CASE WHEN n % 2 = 0 THEN 'timeout' ELSE 'refused' END, CASE WHEN n % 2 = 0 THEN NULL ELSE 400 END,
                CASE WHEN n % 3 = 0 THEN 'sms' ELSE 'push' END
           FROM generate_series(1, {count}) n"
    );
    client.run(&sql).await;
}

/// "matched done background?"
async fn act(client: &Client, call: &str) -> String {
    client.value(&format!("SELECT concat_ws(' ', matched, done, bulk_id IS NOT NULL) FROM outboxd.{call}")).await
}

/// Works a bulk action off as instances do, with a new transaction for each step.
async fn work_off(client: &Client) -> usize {
    for steps in 0..1_000 {
        // Nobody sends here; do not wait for it.
        client.run("UPDATE outboxd.bulk_action SET stepped_at = NULL WHERE ended_at IS NULL").await;
        if client.query("SELECT * FROM outboxd._bulk_step()", &[]).await.unwrap().is_empty() {
            return steps;
        }
    }
    panic!("it never ends");
}

#[tokio::test]
async fn a_dry_run_counts_what_matches_each_key_of_the_filter() {
    let client = postgres::database().await.connect().await;
    kill(&client, 60).await;
    for (filter, matched) in [
        ("{}", 60),
        (r#"{"topic": "dead"}"#, 60),
        (r#"{"topic": "other"}"#, 0),
        (r#"{"error_like": "time%"}"#, 30),
        (r#"{"channel": "sms"}"#, 20),
        (r#"{"channel": ""}"#, 0),
        (r#"{"http_status": 400}"#, 30),
        (r#"{"cause": "HTTP 400"}"#, 30),
        (r#"{"cause": "timeout"}"#, 30),
        (r#"{"cause": "time"}"#, 0),
        (r#"{"recipient": "r7"}"#, 1),
        (r#"{"channel": "sms", "http_status": 400}"#, 10),
    ] {
        assert_eq!(act(&client, &format!("retry_where('{filter}')")).await, format!("{matched} 0 f"), "{filter}");
    }
    let since = "retry_where(jsonb_build_object('since', now() - interval '9.5 s'))";
    assert_eq!(act(&client, since).await, "10 0 f");
    let until = "retry_where(jsonb_build_object('until', now() - interval '9.5 s'))";
    assert_eq!(act(&client, until).await, "50 0 f");
    assert_eq!(client.count("outbox").await, 0);
    assert_eq!(client.count("audit").await, 0);
}

#[tokio::test]
async fn a_filter_that_is_not_understood_is_refused() {
    let client = postgres::database().await.connect().await;
    for (call, message) in [
        (r#"retry_where('{"topik": "a", "zone": 1}')"#, "retry_where: unknown key in filter: topik, zone"),
        ("retry_where('[]')", "retry_where: filter must be a JSON object"),
        ("retry_where(NULL)", "retry_where: filter must be a JSON object"),
        (r#"retry_where('{"topic": null}')"#, "retry_where: topic must be a string or a number"),
        (
            r#"retry_where('{"since": "soon"}')"#,
            "retry_where: invalid input syntax for type timestamp with time zone: \"soon\"",
        ),
        (r#"retry_where('{"http_status": "x"}')"#, "retry_where: invalid input syntax for type smallint: \"x\""),
        (r#"cancel_where('{"error_like": "%"}')"#, "cancel_where: unknown key in filter: error_like"),
    ] {
        let refusal = client.refused(&format!("SELECT * FROM outboxd.{call}")).await;
        assert_eq!((refusal.code.as_str(), refusal.message.as_str()), ("22023", message));
        assert!(!refusal.hint.is_empty(), "{call}");
    }
    assert_eq!(client.refused("SELECT outboxd.retry_where('{}', NULL)").await.code, "22004");
}

#[tokio::test]
async fn a_small_retry_is_done_at_once_and_audited() {
    let client = postgres::database().await.connect().await;
    kill(&client, 20).await;
    let call = r#"retry_where('{"channel": "sms"}', dry_run => false)"#;
    assert_eq!(act(&client, call).await, "6 6 f");
    assert_eq!(act(&client, call).await, "0 0 f");
    assert_eq!(client.count("outbox").await, 6);
    let audit = "SELECT concat_ws(' ', actor, action, subject, affected, detail) FROM outboxd.audit ORDER BY id";
    assert_eq!(
        client.values::<String>(audit).await,
        [r#"postgres retry_where {"channel": "sms"} 6"#, r#"postgres retry_where {"channel": "sms"} 0"#]
    );
}

#[tokio::test]
async fn a_big_retry_is_worked_off_in_batches_and_leaves_what_failed_since() {
    let client = postgres::database().await.connect().await;
    kill(&client, 3_000).await;
    assert_eq!(act(&client, r#"retry_where('{"error_like": "timeout"}', false)"#).await, "1500 0 t");
    assert_eq!(client.count("outbox").await, 0, "the call only writes it down");
    let progress =
        "SELECT concat_ws(' ', action, filter, actor, state, matched, done, percent) FROM outboxd.bulk_actions";
    assert_eq!(client.value::<String>(progress).await, r#"retry {"error_like": "timeout"} postgres running 1500 0 0"#);
    client.run("SELECT * FROM outboxd._bulk_step()").await;
    assert_eq!(
        client.value::<String>(progress).await,
        r#"retry {"error_like": "timeout"} postgres running 1500 100 7"#
    );
    // The first of them fails again: it is a new dead letter.
    client.run("WITH o AS (DELETE FROM outboxd.outbox WHERE id = 2) UPDATE outboxd.notification_log SET status = 'FAILED', error = 'timeout', finished_at = now(), failed_at = now() WHERE id = 2").await;
    assert!(work_off(&client).await >= 14, "a hundred at a time");
    assert_eq!(
        client.value::<String>(progress).await,
        r#"retry {"error_like": "timeout"} postgres finished 1500 1500 100"#
    );
    assert_eq!(client.count("outbox").await, 1_499);
    assert_eq!(client.value::<String>("SELECT status FROM outboxd.notifications WHERE id = 2").await, "FAILED");
    let audit = "SELECT concat_ws(' ', actor, action, subject, affected) FROM outboxd.audit ORDER BY id";
    assert_eq!(
        client.values::<String>(audit).await,
        [r#"postgres retry_where {"error_like": "timeout"} 1500"#, "postgres bulk_retry_finished 1 1500"]
    );
}

#[tokio::test]
async fn retry_dead_of_many_runs_in_the_background_up_to_its_max() {
    let client = postgres::database().await.connect().await;
    kill(&client, 3_000).await;
    assert_eq!(client.value::<i64>("SELECT outboxd.retry_dead('dead', max => 1100)").await, 1_100);
    work_off(&client).await;
    assert_eq!(
        client.value::<String>("SELECT concat_ws(' ', state, done) FROM outboxd.bulk_actions").await,
        "finished 1100"
    );
    let oldest = "SELECT bool_and(id <= 1100) FROM outboxd.outbox";
    assert!(client.value::<bool>(oldest).await, "the oldest first");
}

#[tokio::test]
async fn dead_letters_that_match_are_discarded_with_their_errors_and_no_other() {
    let client = postgres::database().await.connect().await;
    kill(&client, 2_400).await;
    let few = r#"discard_where('{"recipient": "r7"}'"#;
    assert_eq!(act(&client, &format!("{few})")).await, "1 0 f", "a dry run");
    assert_eq!(act(&client, &format!("{few}, false)")).await, "1 1 f");
    assert_eq!(act(&client, r#"discard_where('{"error_like": "timeout"}', dry_run => false)"#).await, "1200 0 t");
    // Failed since it was counted: left alone.
    kill(&client, 2).await;
    work_off(&client).await;
    let left = "SELECT string_agg(concat_ws(' ', status, error, count), ', ' ORDER BY status, error)
                  FROM (SELECT status, error, count(*) FROM outboxd.notifications GROUP BY 1, 2) n";
    assert_eq!(
        client.value::<String>(left).await,
        "CANCELED refused 1, CANCELED timeout 1200, FAILED refused 1200, FAILED timeout 1"
    );
    let audit = "SELECT concat_ws(' ', action, subject, affected) FROM outboxd.audit ORDER BY id";
    assert_eq!(
        client.values::<String>(audit).await,
        [
            r#"discard_where {"recipient": "r7"} 1"#,
            r#"discard_where {"error_like": "timeout"} 1200"#,
            "bulk_discard_finished 1 1200"
        ]
    );
    let refusal = client.refused(r#"SELECT outboxd.discard_where('{"topik": "a"}')"#).await;
    assert_eq!(refusal.message, "discard_where: unknown key in filter: topik");
}

#[tokio::test]
async fn a_bulk_action_can_be_stopped_and_one_instance_at_a_time_works_on_it() {
    let database = postgres::database().await;
    let (client, other) = (database.connect().await, database.connect().await);
    kill(&client, 2_000).await;
    client.run("SELECT outboxd.retry_where('{}', false)").await;
    client.run("BEGIN; SELECT * FROM outboxd._bulk_step()").await;
    assert!(other.query("SELECT * FROM outboxd._bulk_step()", &[]).await.unwrap().is_empty(), "another is at it");
    client.run("COMMIT").await;
    assert!(other.value::<bool>("SELECT outboxd.stop_bulk(1)").await);
    assert_eq!(work_off(&client).await, 0);
    let state = "SELECT concat_ws(' ', state, done, percent, stopped_by) FROM outboxd.bulk_actions";
    assert_eq!(client.value::<String>(state).await, "stopped 100 5 postgres");
    assert!(!client.value::<bool>("SELECT outboxd.stop_bulk(1)").await);
    assert_eq!(client.refused("SELECT outboxd.stop_bulk(99)").await.code, "P0002");
    let audit = "SELECT concat_ws(' ', action, subject, affected) FROM outboxd.audit ORDER BY id DESC LIMIT 1";
    assert_eq!(client.value::<String>(audit).await, "stop_bulk 1 100");
}

#[tokio::test]
async fn a_step_that_fails_is_shown_and_tried_again() {
    let client = postgres::database().await.connect().await;
    kill(&client, 1_500).await;
    client.run("SELECT outboxd.retry_where('{}', false)").await;
    client.run("ALTER TABLE outboxd.outbox ADD CONSTRAINT no CHECK (false) NOT VALID").await;
    client.run("SELECT * FROM outboxd._bulk_step()").await;
    let state = "SELECT concat_ws(' ', state, done, error LIKE '%\"no\"%') FROM outboxd.bulk_actions";
    assert_eq!(client.value::<String>(state).await, "failing 0 t");
    assert!(client.query("SELECT * FROM outboxd._bulk_step()", &[]).await.unwrap().is_empty(), "it rests");
    client.run("ALTER TABLE outboxd.outbox DROP CONSTRAINT no; UPDATE outboxd.bulk_action SET next_at = now()").await;
    work_off(&client).await;
    assert_eq!(client.value::<String>(state).await, "finished 1500");
}

#[tokio::test]
async fn cancel_where_takes_back_what_waits_and_flags_what_is_in_flight() {
    let client = postgres::database().await.connect().await;
    client.run("SELECT outboxd.notify('t', 'r' || n, '{}') FROM generate_series(1, 4) n").await;
    client.run("SELECT outboxd.notify('t', 'r' || n, '{}', ordering_key => 'k') FROM generate_series(5, 6) n").await;
    client.run("SELECT outboxd._admit('{t}', '{k}')").await;
    client.run("SELECT outboxd.notify('t', 'later', '{}', send_at => now() + interval '1 day')").await;
    client.run("SELECT outboxd.notify('keep', 'r', '{}')").await;
    let changed = "UPDATE outboxd.outbox SET state = 'processing', instance = 1, epoch = 1, attempts = 1 WHERE id = 1";
    client.run(changed).await;
    assert_eq!(act(&client, r#"cancel_where('{"topic": "t", "recipient": "r5"}')"#).await, "1 0 f");
    let soon = r#"cancel_where(jsonb_build_object('topic', 't', 'until', now() + interval '1 h'))"#;
    assert_eq!(act(&client, soon).await, "6 0 f");
    assert_eq!(act(&client, r#"cancel_where('{"recipient": "r5"}', false)"#).await, "1 1 f");
    let next = "SELECT concat_ws(' ', state, has_turn) FROM outboxd.outbox WHERE id = 6";
    assert_eq!(client.value::<String>(next).await, "ready t", "the next of its key has its turn");
    assert_eq!(act(&client, r#"cancel_where('{"topic": "t"}', false)"#).await, "6 6 f");
    assert_eq!(act(&client, r#"cancel_where('{"topic": "t"}', false)"#).await, "0 0 f");
    let rows = "SELECT string_agg(concat_ws(' ', id, status), ', ' ORDER BY id) FROM outboxd.notifications";
    assert_eq!(
        client.value::<String>(rows).await,
        "1 PROCESSING, 2 CANCELED, 3 CANCELED, 4 CANCELED, 5 CANCELED, 6 CANCELED, 7 CANCELED, 8 QUEUED"
    );
    assert!(client.value::<bool>("SELECT cancel FROM outboxd.outbox WHERE id = 1").await);
}

#[tokio::test]
async fn a_big_cancel_takes_pending_and_live_rows_but_none_written_since() {
    let client = postgres::database().await.connect().await;
    client.run("SELECT outboxd.notify('t' || n % 3, 'r', '{}', send_at => now() + n % 7 * interval '1 day' + interval '1 day') FROM generate_series(1, 2500) n").await;
    client.run("SELECT outboxd.notify('t', 'r', '{}') FROM generate_series(1, 2500) n").await;
    assert_eq!(act(&client, "cancel_where('{}', false)").await, "5000 0 t");
    client.run("SELECT outboxd.notify('t', 'since', '{}')").await;
    work_off(&client).await;
    let rows = "SELECT string_agg(concat_ws(' ', status, n), ', ' ORDER BY status) FROM (SELECT status, count(*) n FROM outboxd.notifications GROUP BY 1) x";
    assert_eq!(client.value::<String>(rows).await, "CANCELED 5000, QUEUED 1");
    assert_eq!(
        client.value::<String>("SELECT concat_ws(' ', state, done) FROM outboxd.bulk_actions").await,
        "finished 5000"
    );
}

#[tokio::test]
async fn running_instances_work_off_a_bulk_retry_between_live_traffic() {
    let world = World::new(Carrier::Stream).await;
    kill(&world.app, 2_000).await;
    let (_one, _two) = (world.setup.start().await, world.setup.start().await);
    world.run("SELECT outboxd.retry_dead('dead')").await;
    world.notify(50).await;
    world.until("SELECT state = 'finished' AND done = 2000 FROM outboxd.bulk_actions").await;
    world.until_ended().await.assert_nothing_lost().assert_no_duplicate();
    assert_eq!(world.provider.count(), 2_050);
}

#[tokio::test]
async fn a_time_in_a_filter_means_the_same_wherever_the_rows_are_worked_off() {
    let database = postgres::database().await;
    let (operator, daemon) = (database.connect().await, database.connect().await);
    operator.run("SET TimeZone = 'Asia/Seoul'; SET DateStyle = 'SQL, DMY'").await;
    daemon.run("SET TimeZone = 'America/New_York'; SET DateStyle = 'SQL, MDY'").await;
    let dead = "INSERT INTO outboxd.notification_log (topic, recipient, payload, status, finished_at, failed_at, error)
                SELECT 'dead', 'r' || n, '{}', 'FAILED', e.at, e.at, 'refused'
                  FROM generate_series(0, 2999) n, LATERAL (SELECT '2026-02-01 00:00+09'::timestamptz + n * interval '1 min' AS at) e";
    operator.run(dead).await;
    let filter = r#"{"since": "01/02/2026 12:00", "until": "02/02/2026 12:00"}"#;
    assert_eq!(act(&operator, &format!("retry_where('{filter}')")).await, "1440 0 f");
    assert_eq!(act(&operator, &format!("retry_where('{filter}', dry_run => false)")).await, "1440 0 t");
    let later = "SELECT outboxd.notify('later', 'r', '{}', send_at => '2027-02-01 00:00+09'::timestamptz + n * interval '1 min')
                   FROM generate_series(0, 2999) n";
    operator.run(later).await;
    let filter = r#"{"topic": "later", "since": "01/02/2027 12:00", "until": "02/02/2027 12:00"}"#;
    assert_eq!(act(&operator, &format!("cancel_where('{filter}', dry_run => false)")).await, "1440 0 t");
    work_off(&daemon).await;
    let minutes = |status: &str, of: &str, from: &str| {
        format!(
            "SELECT concat_ws(' ', min(m), max(m), count(*)) FROM (
                SELECT extract(epoch FROM {of} - '{from} 00:00+09')::int / 60 AS m
                  FROM outboxd.notification_log WHERE status = '{status}') x"
        )
    };
    let retried = "SELECT concat_ws(' ', min(ltrim(recipient, 'r')::int), max(ltrim(recipient, 'r')::int), count(*))
                     FROM outboxd.notification_log WHERE status = 'QUEUED'";
    assert_eq!(operator.value::<String>(retried).await, "720 2159 1440");
    assert_eq!(operator.value::<String>(&minutes("CANCELED", "send_at", "2027-02-01")).await, "720 2159 1440");
}
