//! The tables themselves: constraints refuse illegal states, a normal life is made of HOT updates, plans stay
//! on their indexes.

use tokio_postgres::Client;

use crate::support::postgres;
use crate::support::sql::Sql;

/// name, lead, spread, catch_up, next_slot and error of a schedule
macro_rules! SCHEDULE {
    ($name:literal, $lead:literal, $spread:literal, $catch_up:literal, $rest:literal) => {
        concat!(
            "INSERT INTO outboxd.schedule (cron, timezone, topic, audience, name, lead, spread, catch_up, next_slot, error)
             VALUES ('@daily', 'UTC', 't', 'a', ", $name, ", ", $lead, ", ", $spread, ", ", $catch_up, ", ", $rest, ")"
        )
    };
}

/// state, error and ended_at of a run
macro_rules! RUN {
    ($state:literal, $error:literal, $ended_at:literal) => {
        concat!(
            "INSERT INTO outboxd.schedule_run
                    (schedule_id, version, schedule, topic, audience, spread, slot, release_at, state, error, ended_at)
             VALUES (1, 1, 's', 't', 'a', '0', now(), now(), ", $state, ", ", $error, ", ", $ended_at, ")"
        )
    };
}

/// (constraint, statement that would break it)
const ILLEGAL: &[(&str, &str)] = &[
    (
        "topic_has_1_to_200_and_recipient_1_to_2048_bytes",
        "UPDATE outboxd.notification_log SET topic = repeat('x', 201)",
    ),
    ("topic_has_1_to_200_and_recipient_1_to_2048_bytes", "UPDATE outboxd.notification_log SET recipient = ''"),
    ("keys_have_1_to_512_bytes", "UPDATE outboxd.notification_log SET dedup_key = ''"),
    ("keys_have_1_to_512_bytes", "UPDATE outboxd.notification_log SET ordering_key = repeat('x', 513)"),
    ("payload_has_at_most_256_kib", "UPDATE outboxd.notification_log SET payload = to_jsonb(repeat('x', 262143))"),
    ("headers_are_an_object_of_strings", "UPDATE outboxd.notification_log SET headers = '{\"a\": 1}'"),
    ("times_are_in_the_years_1_to_9999", "UPDATE outboxd.notification_log SET send_at = 'infinity'"),
    ("times_are_in_the_years_1_to_9999", "UPDATE outboxd.notification_log SET expires_at = '-infinity'"),
    ("topic_has_1_to_200_bytes", "INSERT INTO outboxd.topic (name) VALUES ('')"),
    (
        "recipient_has_1_to_2048_bytes",
        "INSERT INTO outboxd.schedule_recipient VALUES (1, 1, 1, repeat('x', 2049), '{}')",
    ),
    (
        "only_whole_channels_are_paused",
        "INSERT INTO outboxd.channel_state (channel, origin, paused_at) VALUES ('c', 'https://a', now())",
    ),
    (
        "what_is_held_and_only_that_has_a_reason",
        "INSERT INTO outboxd.channel_state (channel, reason) VALUES ('c', 'why')",
    ),
    ("probes_have_an_owner_and_an_end", "INSERT INTO outboxd.channel_state (channel, probe_by) VALUES ('c', 1)"),
    (
        "outcome_is_known_to_us",
        "INSERT INTO outboxd.attempt (notification_id, token, outcome) VALUES (1, 1, 'perhaps')",
    ),
    ("topic_has_1_to_200_bytes", "INSERT INTO outboxd.event (topic, key, payload) VALUES ('', 'k', '{}')"),
    ("key_has_1_to_512_bytes", "INSERT INTO outboxd.event (topic, key, payload) VALUES ('t', '', '{}')"),
    ("headers_are_an_object", "INSERT INTO outboxd.event (topic, key, payload, headers) VALUES ('t', 'k', '{}', '1')"),
    (
        "publications_have_events",
        "INSERT INTO outboxd.event_publication (number, through, since, bytes, topic, event_ids) VALUES (1, 1, now(), 0, 't', '{}')",
    ),
    ("there_is_one_row_of_event_progress", "INSERT INTO outboxd.event_progress (only_row) VALUES (false)"),
    ("only_what_was_lost_is_restored", "UPDATE outboxd.event_progress SET restored_at = now()"),
    ("consumer_has_1_to_200_bytes", "INSERT INTO outboxd.inbox (consumer, message_id, owner) VALUES ('', 'm', 'o')"),
    ("message_id_has_1_to_512_bytes", "INSERT INTO outboxd.inbox (consumer, message_id, owner) VALUES ('c', '', 'o')"),
    (
        "responses_and_only_they_have_responded_at",
        "INSERT INTO outboxd.inbox (consumer, message_id, response, owner) VALUES ('c', 'm', '1', 'o')",
    ),
    ("there_is_one_secret", "INSERT INTO outboxd.schedule_secret (only_row) VALUES (false)"),
    ("there_is_one_origin", "INSERT INTO outboxd.origin (only_row) VALUES (false)"),
    ("phase_is_known_to_us", "UPDATE outboxd.origin SET phase = 'lost'"),
    ("it_is_the_same_or_a_new_one", "UPDATE outboxd.origin SET adopted_as = 'mine'"),
    (
        "pending_rows_have_a_time_and_no_position",
        "INSERT INTO outboxd.copied (id, epoch, attempts, route_step, channel_attempts, cancel, topic) VALUES (1, 0, 0, 0, 0, false, 't')",
    ),
    ("there_is_one_row_of_settings", "INSERT INTO outboxd.setting (only_row) VALUES (false)"),
    (
        "spans_measure_notify_seen_or_call",
        "INSERT INTO outboxd.statistics_span (minute, measure, subject, bucket, count) VALUES (now(), 'nap', 't', 1, 1)",
    ),
    (
        "bulk_actions_retry_discard_or_cancel",
        "INSERT INTO outboxd.bulk_action (action, filter, actor, matched) VALUES ('delete', '{}', 'a', 1)",
    ),
    (
        "only_ended_bulk_actions_are_stopped",
        "INSERT INTO outboxd.bulk_action (action, filter, actor, matched, stopped_by) VALUES ('retry', '{}', 'a', 1, 'b')",
    ),
    ("there_is_one_snapshot", "INSERT INTO outboxd.snapshot (only_row) VALUES (false)"),
    ("audience_has_1_row_or_more", "UPDATE outboxd.setting SET audience_rows_max = 0"),
    ("audience_time_is_between_100_ms_and_1_hour", "UPDATE outboxd.setting SET audience_time_max = '2 h'"),
    ("owners_and_only_they_have_a_lease", "UPDATE outboxd.leader_lease SET owner = 1"),
    ("name_has_1_to_200_bytes", SCHEDULE!("''", "'1 h'", "'0'", "'0'", "NULL, NULL")),
    ("lead_is_up_to_a_day", SCHEDULE!("'s'", "'25 h'", "'0'", "'0'", "NULL, NULL")),
    ("spread_is_up_to_a_day", SCHEDULE!("'s'", "'0'", "'-1 s'", "'0'", "NULL, NULL")),
    ("catch_up_is_up_to_a_week", SCHEDULE!("'s'", "'0'", "'0'", "'8 days'", "NULL, NULL")),
    (
        "expires_after_is_a_second_to_30_days",
        "INSERT INTO outboxd.schedule (cron, timezone, topic, audience, name, lead, spread, catch_up, expires_after)
         VALUES ('@daily', 'UTC', 't', 'a', 's', '0', '0', '0', '0')",
    ),
    ("schedules_with_an_error_have_no_slot", SCHEDULE!("'s'", "'0'", "'0'", "'0'", "now(), 'e'")),
    ("state_is_known_to_us", RUN!("'done'", "NULL", "now()")),
    ("ended_runs_and_only_they_have_ended_at", RUN!("'prepared'", "NULL", "now()")),
    ("failed_runs_have_an_error", RUN!("'failed'", "NULL", "now()")),
];

#[tokio::test]
async fn each_constraint_refuses_the_illegal_state_it_names() {
    let client = postgres::database().await.connect().await;
    client.run("INSERT INTO outboxd.notification_log (topic, recipient, payload) VALUES ('t', 'r', '{}')").await;
    for (constraint, statement) in ILLEGAL {
        let refusal = client.refused(statement).await;
        assert_eq!(refusal.code, "23514", "{statement}: {refusal:?}");
        assert!(refusal.message.contains(&format!("\"{constraint}\"")), "{statement}: {refusal:?}");
    }
    let tried: Vec<&str> = ILLEGAL.iter().map(|(constraint, _)| *constraint).collect();
    let checks = "SELECT DISTINCT conname::text FROM pg_constraint
                   WHERE contype = 'c' AND connamespace = 'outboxd'::regnamespace ORDER BY 1";
    let untried: Vec<String> =
        client.values::<String>(checks).await.into_iter().filter(|name| !tried.contains(&name.as_str())).collect();
    assert_eq!(untried, [""; 0], "every CHECK is tried here");
}

/// What publish, claim and complete do to the rows of a normal life, 200 notifications one by one.
async fn live_and_send(client: &Client) {
    let life = "DO $$
        DECLARE one bigint;
        BEGIN
            FOR n IN 1..200 LOOP
                one := outboxd.notify('t', 'r' || n, '{\"text\": \"hello\"}');
                UPDATE outboxd.outbox SET state = 'published', instance = 1, published_at = clock_timestamp() WHERE id = one;
                UPDATE outboxd.outbox SET state = 'processing', instance = 1, epoch = epoch + 1, attempts = attempts + 1,
                       channel_attempts = channel_attempts + 1, retry_at = NULL,
                       lease_until = clock_timestamp() + interval '60 s' WHERE id = one;
                COMMIT;
                DELETE FROM outboxd.outbox WHERE id = one;
                UPDATE outboxd.notification_log SET status = 'SENT', finished_at = clock_timestamp(), epoch = 1, attempts = 1,
                       channel = 'push', http_status = 200 WHERE id = one;
                COMMIT;
            END LOOP;
        END $$";
    client.run(life).await;
}

/// HOT updates and updates of a table, once the statistics have seen `updates`.
async fn hot_updates(client: &Client, table: &str, updates: i64) -> (i64, i64) {
    let version: i32 = client.value("SELECT current_setting('server_version_num')::int").await;
    if version >= 150_000 {
        client.run("SELECT pg_stat_force_next_flush()").await;
    }
    let wanted = format!("SELECT n_tup_upd >= {updates} FROM pg_stat_user_tables WHERE relid = '{table}'::regclass");
    client.until(&wanted).await;
    let row = client
        .query_one(
            "SELECT n_tup_hot_upd, n_tup_upd FROM pg_stat_user_tables WHERE relid = $1::text::regclass",
            &[&table],
        )
        .await
        .unwrap();
    (row.get(0), row.get(1))
}

#[tokio::test]
async fn from_queued_to_sent_every_update_is_hot() {
    let client = postgres::database().await.connect().await;
    live_and_send(&client).await;
    let (hot, all) = hot_updates(&client, "outboxd.notification_log", 200).await;
    assert_eq!(all, 200);
    // A row at the end of a full page may have to move.
    assert!(hot * 100 >= all * 90, "log: {hot} of {all} updates are HOT");
    let (hot, all) = hot_updates(&client, "outboxd.outbox", 400).await;
    assert_eq!(all, 400);
    assert!(hot * 100 >= all * 90, "outbox: {hot} of {all} updates are HOT");
}

const NOBODY_ELSE_READS: &str = "SELECT NOT EXISTS (SELECT FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_xmin IS NOT NULL)";

#[tokio::test]
async fn work_that_is_published_and_claimed_page_by_page_moves_few_rows() {
    let client = postgres::database().await.connect().await;
    client.run("SELECT outboxd.notify('t', 'r' || n, '{\"text\": \"hello\"}') FROM generate_series(1, 2000) n").await;
    let steps = [
        "state = 'published', instance = 1, published_at = clock_timestamp()",
        "state = 'processing', instance = 1, epoch = 1, attempts = 1, retry_at = NULL, lease_until = clock_timestamp()",
    ];
    for step in steps {
        for first in (1..2000).step_by(50) {
            client.run(&format!("UPDATE outboxd.outbox SET {step} WHERE id BETWEEN {first} AND {}", first + 49)).await;
        }
        // What pages do by themselves, unless somebody's snapshot is older: autovacuum's is for a moment.
        client.until(NOBODY_ELSE_READS).await;
        client.run("VACUUM outboxd.outbox").await;
    }
    let (hot, all) = hot_updates(&client, "outboxd.outbox", 4000).await;
    // 3,600 to 3,800; 3,535 was seen beside an autovacuum.
    assert!(hot * 100 >= all * 85, "{hot} of {all} updates are HOT");
}

#[tokio::test]
async fn a_backlog_that_is_sent_page_by_page_moves_few_rows() {
    let client = postgres::database().await.connect().await;
    client.run("SELECT outboxd.notify('t', 'r' || n, '{\"text\": \"hello\"}') FROM generate_series(1, 2000) n").await;
    let batch =
        "UPDATE outboxd.notification_log SET status = 'SENT', finished_at = clock_timestamp(), epoch = 1, attempts = 1,
                        channel = 'push', http_status = 200 WHERE id BETWEEN";
    for first in (1..2000).step_by(50) {
        client.run(&format!("{batch} {first} AND {}", first + 49)).await;
    }
    let (hot, all) = hot_updates(&client, "outboxd.notification_log", 2000).await;
    // 1,924 while old versions can be pruned in between; 1,784 while somebody's snapshot, in any database, keeps them.
    assert!(hot * 100 >= all * 85, "{hot} of {all} updates are HOT");
}

#[tokio::test]
async fn an_index_on_the_status_would_end_hot_updates() {
    let client = postgres::database().await.connect().await;
    client.run("CREATE INDEX ON outboxd.notification_log (status)").await;
    live_and_send(&client).await;
    let (hot, all) = hot_updates(&client, "outboxd.notification_log", 200).await;
    assert_eq!((hot, all), (0, 200), "this is how the test above would see it");
}

async fn plan(client: &Client, sql: &str) -> String {
    client.values::<String>(&format!("EXPLAIN {sql}")).await.join("\n")
}

#[tokio::test]
async fn lookups_stay_on_their_indexes_when_a_big_table_was_never_analysed() {
    let client = postgres::database().await.connect().await;
    client.run("ALTER TABLE outboxd.notification_log SET (autovacuum_enabled = off)").await;
    let written = "INSERT INTO outboxd.notification_log (topic, recipient, payload, dedup_key, status)
                   SELECT 't' || n % 7, 'r', '{}', 'key ' || n, 'QUEUED' FROM generate_series(1, 50000) n";
    client.run(written).await;
    client.run("SET plan_cache_mode = force_generic_plan").await;
    let statements =
        "PREPARE dedup(text, text) AS SELECT id FROM outboxd.notification_log WHERE topic = $1 AND dedup_key = $2";
    client.run(statements).await;
    client.run("PREPARE many(bigint[]) AS SELECT id FROM outboxd.notification_log WHERE id = ANY ($1) AND status = 'FAILED' FOR UPDATE").await;
    client.run("PREPARE dead(text) AS SELECT id FROM outboxd.notification_log WHERE failed_at IS NOT NULL AND topic = $1 ORDER BY failed_at LIMIT 10").await;
    client.run("PREPARE due(text) AS SELECT id FROM outboxd.notification_log WHERE topic = $1 AND due_at <= now() ORDER BY due_at, id LIMIT 10 FOR UPDATE SKIP LOCKED").await;
    for (statement, index) in [
        ("EXECUTE dedup('t1', 'key 1')", "notification_log_dedup"),
        ("EXECUTE many('{1,2,3}')", "notification_log_pkey"),
        ("EXECUTE dead('t1')", "notification_log_failed"),
        ("EXECUTE due('t1')", "notification_log_due"),
    ] {
        let plan = plan(&client, statement).await;
        assert!(plan.contains(index) && !plan.contains("Seq Scan"), "{statement}:\n{plan}");
    }
}
