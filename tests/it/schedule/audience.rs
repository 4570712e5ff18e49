//! Audiences: read as a role that may do nothing else; a bad one fails its own run and no other.

use crate::support::postgres;
use crate::support::sql::Sql;

use super::{app, create, cron_at, plain_instance, rows_of, run_is};

/// (name, what the view becomes after the schedule was created, what the run says)
const BAD: &[(&str, &str, &str)] = &[
    ("columns", "SELECT 'r' AS somebody, '{}'::jsonb AS payload", "%column a.recipient does not exist (42703)"),
    ("failing", "SELECT (1 / 0)::text AS recipient, '{}'::jsonb AS payload", "%division by zero (22012)"),
    ("slow", "SELECT pg_sleep(60)::text AS recipient, '{}'::jsonb AS payload", "the audience took longer than 700ms%"),
    (
        "many",
        "SELECT n::text AS recipient, '{}'::jsonb AS payload FROM generate_series(1, 2001) n",
        "the audience has more than 2000 rows%",
    ),
    ("nobody", "SELECT NULL AS recipient, '{}'::jsonb AS payload", "%null value in column \"recipient\"%"),
    ("empty", "SELECT '' AS recipient, '{}'::jsonb AS payload", "%recipient_has_1_to_2048_bytes%"),
    ("gone", "", "%there is no audience%"),
    (
        "curious",
        "SELECT app.peek() AS recipient, '{}'::jsonb AS payload",
        "%permission denied for schema outboxd (42501)",
    ),
    (
        "climbing",
        "SELECT app.climb() AS recipient, '{}'::jsonb AS payload",
        "%cannot set parameter \"role\" within security-definer function%",
    ),
];

#[tokio::test]
async fn a_bad_audience_fails_its_run_visibly_and_leaves_the_others_alone() {
    let database = postgres::database().await;
    let client = app(&database, 1000).await;
    let changed = "UPDATE outboxd.setting SET audience_time_max = '700 ms', audience_rows_max = 2000;
        CREATE FUNCTION app.peek() RETURNS text LANGUAGE plpgsql AS $$ BEGIN RETURN (SELECT count(*) FROM outboxd.outbox); END $$;
        CREATE FUNCTION app.climb() RETURNS text LANGUAGE plpgsql AS $$ BEGIN SET ROLE postgres; RETURN current_user; END $$";
    client.run(changed).await;
    let cron = cron_at(&client, "5 min").await;
    for (name, body, _) in BAD {
        let view = format!("app.a_{name}");
        let created = format!(
            "CREATE VIEW {view} AS SELECT * FROM app.audience; GRANT SELECT ON {view} TO outboxd_audience;
             SELECT outboxd.create_schedule('{name}', '{cron}', 'UTC', 'quiz', '{view}'); DROP VIEW {view}"
        );
        client.run(&created).await;
        if !body.is_empty() {
            client.run(&format!("CREATE VIEW {view} AS {body}; GRANT SELECT ON {view} TO outboxd_audience")).await;
        }
    }
    create(&client, "good", "").await;
    let _instance = plain_instance(&database).await;
    run_is(&client, "good", "prepared").await;
    assert_eq!(rows_of(&client, "good").await, (1000, 1000));
    for (name, _, error) in BAD {
        run_is(&client, name, "failed").await;
        let said: String =
            client.value(&format!("SELECT error FROM outboxd.schedule_runs WHERE schedule = '{name}'")).await;
        let is_like = client.query_one("SELECT $1 LIKE $2", &[&said, error]).await.unwrap();
        assert!(is_like.get::<_, bool>(0), "{name}: {said}");
        assert_eq!(rows_of(&client, name).await, (0, 0), "{name}");
    }
    let shown = "schedules WHERE last_state = 'failed' AND error IS NOT NULL";
    assert_eq!(client.count(shown).await, i64::try_from(BAD.len()).unwrap());
}

#[tokio::test]
async fn a_payload_that_is_too_long_fails_the_run_before_anybody_has_a_notification() {
    let database = postgres::database().await;
    // More than one chunk of copies.
    let client = app(&database, 4_500).await;
    let huge = "CREATE OR REPLACE VIEW app.audience AS SELECT 'member-' || n AS recipient,
                       CASE WHEN n = 4500 THEN to_jsonb(repeat('x', 262143)) ELSE '{}' END AS payload FROM app.member ORDER BY n";
    client.run(huge).await;
    create(&client, "huge", "").await;
    let _instance = plain_instance(&database).await;
    run_is(&client, "huge", "failed").await;
    let error: String = client.value("SELECT error FROM outboxd.schedule_runs").await;
    assert!(error.contains("payload_has_at_most_256_kib"), "{error}");
    assert_eq!(rows_of(&client, "huge").await, (0, 0));
}

#[tokio::test]
async fn a_function_that_wants_the_slot_gets_it_and_a_recipient_named_twice_is_sent_one() {
    let database = postgres::database().await;
    let client = app(&database, 1).await;
    let created =
        "CREATE FUNCTION app.of_slot(slot timestamptz) RETURNS TABLE (recipient text, payload jsonb) LANGUAGE sql AS $$
             SELECT r, jsonb_build_object('slot', slot) FROM unnest(ARRAY['a', 'b', 'a', repeat('x', 100), repeat('x', 100)]) r $$;
         CREATE FUNCTION app.of_none() RETURNS SETOF app.audience LANGUAGE sql AS $$ SELECT * FROM app.audience $$;
         REVOKE EXECUTE ON FUNCTION app.of_slot, app.of_none FROM PUBLIC;
         GRANT EXECUTE ON FUNCTION app.of_slot, app.of_none TO outboxd_audience";
    client.run(created).await;
    let cron = cron_at(&client, "5 min").await;
    for function in ["app.of_slot", "app.of_slot(timestamptz)", "app.of_none", "app.of_none()"] {
        let called = format!("SELECT outboxd.create_schedule('{function}', '{cron}', 'UTC', 'quiz', '{function}')");
        client.run(&called).await;
    }
    let _instance = plain_instance(&database).await;
    for (function, rows) in
        [("app.of_slot", 3), ("app.of_slot(timestamptz)", 3), ("app.of_none", 1), ("app.of_none()", 1)]
    {
        run_is(&client, function, "prepared").await;
        assert_eq!(rows_of(&client, function).await, (rows, rows), "{function}");
    }
    let slots = "SELECT bool_and((l.payload ->> 'slot')::timestamptz = l.send_at) FROM outboxd.notification_log l WHERE l.payload ? 'slot'";
    assert!(client.value::<bool>(slots).await);
    let counts =
        "SELECT concat_ws(' ', recipients, prepared) FROM outboxd.schedule_runs WHERE schedule = 'app.of_slot'";
    assert_eq!(client.value::<String>(counts).await, "5 3");
}

#[tokio::test]
async fn a_copy_that_the_log_refuses_fails_the_run() {
    let database = postgres::database().await;
    let client = app(&database, 10).await;
    let rule =
        "ALTER TABLE outboxd.notification_log ADD CONSTRAINT a_rule_of_somebody_else CHECK (recipient <> 'member-5')";
    client.run(rule).await;
    create(&client, "refused", "").await;
    let _instance = plain_instance(&database).await;
    run_is(&client, "refused", "failed").await;
    let error: String = client.value("SELECT error FROM outboxd.schedule_runs").await;
    assert!(error.contains("a_rule_of_somebody_else"), "{error}");
}

#[tokio::test]
async fn whoever_was_sent_a_slot_before_its_schedule_was_altered_is_not_sent_it_again() {
    let database = postgres::database().await;
    let client = app(&database, 100).await;
    create(&client, "altered", "").await;
    let _instance = plain_instance(&database).await;
    run_is(&client, "altered", "prepared").await;
    // The slot came while the alteration canceled the rest.
    let released =
        "UPDATE outboxd.notification_log SET status = 'SENT', finished_at = now() WHERE recipient LIKE 'member-1%'";
    client.run(released).await;
    let canceled: i64 = client.value("SELECT outboxd.alter_schedule('altered', spread => '1 s')").await;
    assert_eq!(canceled, 88, "1, 10 to 19 and 100 were sent");
    client.until("SELECT count(*) = 2 FROM outboxd.schedule_run WHERE state IN ('canceled', 'prepared')").await;
    let rows = "SELECT concat_ws(' ', count(*), count(DISTINCT recipient)) FROM outboxd.notification_log WHERE status <> 'CANCELED'";
    assert_eq!(client.value::<String>(rows).await, "100 100");
}
