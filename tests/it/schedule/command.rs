//! What create_schedule() refuses and why, and the command line.

use std::path::Path;

use crate::support::command::{Ran, run_in};
use crate::support::postgres::{self, Database};
use crate::support::sql::Sql;

use super::app;

/// (arguments, SQLSTATE, message)
const REFUSED: &[(&str, &str, &str)] = &[
    ("NULL, '0 9 * * *', 'UTC', 't', 'app.audience'", "22004", "name must not be NULL"),
    ("'n', NULL, 'UTC', 't', 'app.audience'", "22004", "cron must not be NULL"),
    ("'n', '0 9 * * *', 'UTC', '', 'app.audience'", "22023", "topic has 0 bytes"),
    ("'n', '0 9 * *', 'UTC', 't', 'app.audience'", "22023", "cron '0 9 * *' has 4 fields"),
    ("'n', '0 0 9 * * *', 'UTC', 't', 'app.audience'", "22023", "cron '0 0 9 * * *' has 6 fields"),
    ("'n', '60 9 * * *', 'UTC', 't', 'app.audience'", "22023", "cron's minute goes from 0 to 59, not to 60"),
    ("'n', '0 9 * * ;', 'UTC', 't', 'app.audience'", "22023", "cron has no valid day of week: ;"),
    ("'n', '0 9, * * *', 'UTC', 't', 'app.audience'", "22023", "cron has no valid hour: 9,"),
    ("'n', '0 9 * * *', 'Mars/Olympus', 't', 'app.audience'", "22023", "there is no time zone 'Mars/Olympus'"),
    ("'n', '0 9 * * *', 'UTC', 't', 'app.audience', lead => '2 days'", "22023", "lead 2 days is out of range"),
    ("'n', '0 9 * * *', 'UTC', 't', 'app.audience', spread => '-1 s'", "22023", "spread -00:00:01 is out of range"),
    (
        "'n', '0 9 * * *', 'UTC', 't', 'app.audience', expires_after => '0'",
        "22023",
        "expires_after 00:00:00 is out of range",
    ),
    (
        "'n', '0 9 * * *', 'UTC', 't', 'app.nobody'",
        "42P01",
        "the audience cannot be read: there is no audience 'app.nobody'",
    ),
    (
        "'n', '0 9 * * *', 'UTC', 't', 'audience'",
        "42P01",
        "the audience cannot be read: there is no audience 'audience'",
    ),
    (
        "'n', '0 9 * * *', 'UTC', 't', 'app.wrong'",
        "42703",
        "the audience cannot be read: app.wrong has no column payload",
    ),
    (
        "'n', '0 9 * * *', 'UTC', 't', 'app.secret'",
        "42501",
        "the audience cannot be read: outboxd_audience may not read the column recipient of app.secret",
    ),
    (
        "'n', '0 9 * * *', 'UTC', 't', 'outboxd.outbox'",
        "42501",
        "the audience cannot be read: outboxd_audience may not use the schema outboxd",
    ),
];

#[tokio::test]
async fn a_schedule_that_cannot_work_is_refused_with_a_reason() {
    let database = postgres::database().await;
    let client = app(&database, 1).await;
    let created = "CREATE VIEW app.wrong AS SELECT 'r' AS recipient; GRANT SELECT ON app.wrong TO outboxd_audience;
                   CREATE TABLE app.secret (recipient text, payload jsonb)";
    client.run(created).await;
    for (arguments, code, message) in REFUSED {
        let refusal = client.refused(&format!("SELECT outboxd.create_schedule({arguments})")).await;
        assert_eq!(
            (refusal.code.as_str(), refusal.message.as_str()),
            (*code, format!("create_schedule: {message}").as_str())
        );
    }
    // No name at all; to newer servers it is one of nothing.
    let injected = "SELECT outboxd.create_schedule('n', '@daily', 'UTC', 't', 'app.audience; DROP TABLE app.member')";
    let refusal = client.refused(injected).await;
    assert!(["42602", "42P01"].contains(&refusal.code.as_str()), "{refusal:?}");
    assert_eq!(client.value::<i64>("SELECT count(*) FROM app.member").await, 1);
    client.run("SELECT outboxd.create_schedule('n', '*/5 9-17 1,15 JAN-MAR MON', 'UTC', 't', 'app.audience')").await;
    client.run("SELECT outboxd.create_schedule('m', '@daily', 'Asia/Seoul', 't', 'app.audience')").await;
    let again = client.refused("SELECT outboxd.create_schedule('n', '@daily', 'UTC', 't', 'app.audience')").await;
    assert_eq!(
        (again.code.as_str(), again.message.as_str()),
        ("42710", "create_schedule: there is a schedule 'n' already")
    );
    assert_eq!(client.refused("SELECT outboxd.drop_schedule('x')").await.code, "P0002");
    assert_eq!(client.refused("SELECT outboxd.alter_schedule('n', timezone => 'x')").await.code, "22023");
}

async fn outboxd(database: &Database, args: &[&str]) -> Ran {
    run_in(Path::new("."), &[&["schedule"], args].concat(), &[("DATABASE_URL", &database.url())]).await
}

#[tokio::test]
async fn the_command_line_creates_lists_pauses_and_drops() {
    let database = postgres::database().await;
    let _client = app(&database, 1).await;
    let create = [
        "create",
        "daily",
        "0 9 * * *",
        "Asia/Seoul",
        "quiz",
        "app.audience",
        "--spread",
        "30m",
        "--expires-after",
        "2h",
    ];
    let created = outboxd(&database, &create).await;
    assert_eq!(created.code, 0, "{created:?}");
    assert!(created.err.is_empty(), "{created:?}");
    let listed = outboxd(&database, &["list", "--json"]).await.json();
    let daily = &listed["schedules"][0];
    assert_eq!((daily["name"].as_str(), daily["state"].as_str()), (Some("daily"), Some("new")));
    assert_eq!(daily["expires_after"].as_str(), Some("02:00:00"));
    assert_eq!((daily["spread"].as_str(), daily["lead"].as_str()), (Some("00:30:00"), Some("00:10:00")));
    let text = outboxd(&database, &["list"]).await.out;
    assert!(text.trim_start().starts_with("NAME") && text.contains("daily") && text.contains("Asia/Seoul"), "{text}");
    let again = outboxd(&database, &create).await;
    assert_eq!(again.code, 1);
    assert!(again.err.contains("there is a schedule 'daily' already; Change it"), "{again:?}");
    assert_eq!(outboxd(&database, &["pause", "daily"]).await.code, 0);
    let paused = outboxd(&database, &["list"]).await.out;
    assert!(paused.contains("paused"), "{paused}");
    assert_eq!(outboxd(&database, &["resume", "daily"]).await.code, 0);
    assert_eq!(outboxd(&database, &["pause", "nobody"]).await.code, 1);
    assert_eq!(outboxd(&database, &["drop", "daily"]).await.code, 0);
    assert_eq!(outboxd(&database, &["drop", "daily"]).await.code, 1);
}

#[tokio::test]
async fn what_the_server_notes_beside_its_answer_is_told_on_stderr() {
    let database = postgres::database().await;
    let client = app(&database, 1).await;
    let create = async |name: &str, topic: &str| {
        let created = outboxd(&database, &["create", name, "0 9 * * *", "UTC", topic, "app.audience"]).await;
        assert_eq!(created.code, 0, "{created:?}");
        created.err
    };
    let instances = "INSERT INTO outboxd.instance (ttl, pid, roles, queue_kind, host, version)
                     SELECT '1 min', 1, '{relay,worker}', 'stream', h, '0' FROM unnest('{a,b}'::text[]) h;
                     INSERT INTO outboxd.instance_report (instance, clock_skew_ms, topics) VALUES (1, 0, '{orders,news}'), (2, 0, '{orders}');
                     INSERT INTO outboxd.route VALUES ('orders', 0, 'push')";
    assert_eq!(create("early", "quiz").await, "", "no instance runs that could tell");
    client.run(instances).await;
    let told = |which: &str| {
        format!(
            "outboxd: no route leads {which}; what this schedule sends waits for an instance that has one; Add [routes.TOPIC] or \
             [routes.default] to the configuration of every instance and restart.\n"
        )
    };
    assert_eq!(create("daily", "quiz").await, told("'quiz' anywhere"));
    assert_eq!(create("weekly", "news").await, told("'news' on 1 of 2 instances: 2 on b"), "the other one has it");
    assert_eq!(create("hourly", "orders").await, "");
    client.run("UPDATE outboxd.instance SET roles = '{relay}' WHERE id = 1").await;
    assert_eq!(create("monthly", "news").await, told("'news' anywhere"), "who has it only relays");
    client.run(&format!("ALTER DATABASE {} SET client_min_messages = 'error'", database.name)).await;
    let resumed = outboxd(&database, &["resume", "daily"]).await;
    assert_eq!((resumed.code, resumed.err.as_str()), (0, "outboxd: schedule 'daily' was not paused\n"));
}
