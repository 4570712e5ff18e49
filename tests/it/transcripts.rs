//! The transcripts in docs/sql.md are what a real session of an operator shows: each command between the fences is run,
//! in order, and its output compared. `OUTBOXD_BLESS=1` writes the outputs anew. Times are shown as if now were noon of
//! 2026-01-31, to the nearest minute.

use std::path::Path;

use chrono::{DateTime, NaiveDateTime, TimeDelta, TimeZone, Utc};
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::support::sql::Sql;
use crate::support::{golden, postgres};

const FENCE: &str = "```psql";
const PROMPT: &str = "app=> ";

/// An afternoon: orders flow, the provider of SMS is down, a quiz is paused, and something went wrong before lunch.
const SCENE: &str = r#"
INSERT INTO outboxd.instance (started_at, ttl, pid, roles, queue_kind, host, version, in_flight)
VALUES (now() - interval '3 h', '1 h', 812, '{producer,relay,worker,scheduler,api}', 'stream', 'web-1', '0.1.0', 3);
INSERT INTO outboxd.instance_report (instance, clock_skew_ms, queue_reachable, queue_policy, queue_memory_bytes, queue_memory_max_bytes)
VALUES (1, 4, true, 'noeviction', 12582912, 268435456);
INSERT INTO outboxd.topic (name, paused_at) VALUES ('quiz', now() - interval '30 min');
INSERT INTO outboxd.route VALUES ('orders', 0, 'push'), ('orders', 1, 'sms'), ('quiz', 0, 'push');
INSERT INTO outboxd.statistics_minute VALUES
  (date_trunc('minute', now()) - interval '2 min', 1000, 2200, 1210, 1198, 0, 9), (date_trunc('minute', now()) - interval '1 min', 2200, 3385, 1190, 1184, 2, 14),
  (date_trunc('minute', now()), 3385, 3385, 0, 0, 0, 0);
INSERT INTO outboxd.statistics_topic VALUES
  (date_trunc('minute', now()) - interval '2 min', 'orders', 1198, 0, 9), (date_trunc('minute', now()) - interval '1 min', 'orders', 1184, 2, 14);
INSERT INTO outboxd.statistics_span SELECT date_trunc('minute', now()) - interval '1 min', m, 'orders', '', b, n
  FROM (VALUES ('notify', 10, 1500), ('notify', 14, 800), ('notify', 25, 82), ('seen', 8, 1700), ('seen', 12, 682)) s(m, b, n);
INSERT INTO outboxd.statistics_span VALUES (date_trunc('minute', now()) - interval '1 min', 'call', 'push', '', 7, 2382), (date_trunc('minute', now()) - interval '1 min', 'call', 'sms', '', 40, 9);
INSERT INTO outboxd.statistics_channel VALUES
  (date_trunc('minute', now()) - interval '1 min', 'push', '', 2382, 3, 0, 'status 503 Service Unavailable', now() - interval '1 min'),
  (date_trunc('minute', now()) - interval '1 min', 'sms', '', 0, 8, 1, 'connect: Connection refused (os error 111)', now() - interval '1 min');
INSERT INTO outboxd.channel_state (channel, held_until, reason, openings) VALUES ('sms', now() + interval '2 min', 'failures', 1);
INSERT INTO outboxd.notification_log (topic, recipient, payload, created_at, send_at) VALUES
  ('orders', 'device-1', '{"text": "Your parcel is on its way"}', now() - interval '1 min', now() - interval '1 min'),
  ('orders', '+82101234567', '{"text": "Your parcel is on its way"}', now() - interval '5 min', now() - interval '5 min'),
  ('quiz', 'device-3', '{"text": "Time for the quiz"}', now() - interval '2 min', now() - interval '2 min'),
  ('quiz', 'device-4', '{"text": "Time for the quiz"}', now() - interval '2 min', now() - interval '2 min'),
  ('quiz', 'device-5', '{"text": "Time for the quiz"}', now() - interval '10 min', now() + interval '20 h');
UPDATE outboxd.notification_log SET status = 'QUEUED' WHERE id <= 4;
INSERT INTO outboxd.outbox (id, topic, state, instance, lease_until, route_step, attempts, retry_at) VALUES
  (1, 'orders', 'processing', 1, now() + interval '5 min', 0, 1, NULL), (2, 'orders', 'ready', NULL, NULL, 1, 3, now() + interval '2 min'),
  (3, 'quiz', 'ready', NULL, NULL, 0, 0, NULL), (4, 'quiz', 'ready', NULL, NULL, 0, 0, NULL);
INSERT INTO outboxd.attempt (notification_id, token, number, started_at, ended_at, duration_ms, instance, http_status, outcome, channel, error) VALUES
  (2, 1, 1, now() - interval '5 min', now() - interval '5 min', 31, 1, 503, 'failed', 'push', 'status 503 Service Unavailable'),
  (2, 3, 2, now() - interval '4 min', now() - interval '4 min', 5000, 1, NULL, 'unknown', 'push', 'timeout after the request went out'),
  (2, 5, 3, now() - interval '1 min', now() - interval '1 min', 2, 1, NULL, 'failed', 'sms', 'connect: Connection refused (os error 111)');
INSERT INTO outboxd.notification_log (topic, recipient, payload, status, created_at, finished_at, failed_at, channel, attempts, http_status, error)
SELECT 'orders', 'device-' || n, '{"text": "hello"}', 'FAILED', now() - interval '7 h', now() - interval '6 h' + n / 10 * interval '1 min',
       now() - interval '6 h' + n / 10 * interval '1 min', 'sms', 7,
       CASE WHEN n % 4 > 0 THEN 502 END, CASE WHEN n % 4 > 0 THEN 'status 502 Bad Gateway' ELSE 'connect: Connection refused (os error 111)' END FROM generate_series(1, 1600) n;
INSERT INTO outboxd.notification_log (topic, recipient, payload, status, created_at, finished_at, failed_at, channel, attempts, http_status, error) VALUES
  ('orders', 'device-9', '{"text": "hello"}', 'FAILED', now() - interval '11 min', now() - interval '1 min', now() - interval '1 min', 'push', 1, 400, 'status 400 Bad Request'),
  ('quiz', 'device-8', '{"text": "hello"}', 'SENT', now() - interval '1 min', now() - interval '1 min', NULL, 'push', 1, 200, NULL);
INSERT INTO outboxd.event_outbox (event_id, topic, since) SELECT n, 'order', now() FROM generate_series(1, 12) n;
INSERT INTO outboxd.event_group (topic, name, delivered_id, gone, behind, stream_max) VALUES
  ('order', 'billing', '0-0', 0, 40, 100000), ('order', 'search', '0-0', 0, 83112, 100000);
"#;

/// What makes one run of the session look like the next.
struct Normal {
    login: String,
    /// The minute in which the scene was set: 12:00.
    minute: DateTime<Utc>,
}

/// A value as it would be if now were noon of 2026-01-31.
fn calm(value: &str, now: DateTime<Utc>, normal: &Normal) -> String {
    let noon = Utc.with_ymd_and_hms(2026, 1, 31, 12, 0, 0).unwrap();
    if let Ok(at) = NaiveDateTime::parse_from_str(value, "%Y-%m-%d %H:%M:%S%.f+00") {
        let is_minute = at.and_utc().timestamp_micros() % 60_000_000 == 0;
        let since = if is_minute { normal.minute } else { now };
        let offset = TimeDelta::seconds(whole_minutes((at.and_utc() - since).as_seconds_f64()));
        return (noon + offset).format("%Y-%m-%d %H:%M:%S+00").to_string();
    }
    if let Some(seconds) = interval(value) {
        let seconds = whole_minutes(seconds);
        return format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    }
    let words: Vec<&str> = value.split(' ').collect();
    let calmed = words.iter().enumerate().map(|(n, word)| match words.get(n + 1) {
        Some(&"s" | &"s,") if word.parse::<f64>().is_ok() => whole_minutes(word.parse().unwrap()).to_string(),
        Some(&"transactions") => "12".to_owned(),
        _ if n > 0 && words[n - 1] == "pid" => "4711".to_owned(),
        _ if n > 0 && matches!(words[n - 1], "since" | "at") && word.starts_with("20") => "2026-01-31".to_owned(),
        _ if n > 1 && words[n - 2] == "since" && word.contains(':') => "11:30".to_owned(),
        _ if n > 1 && words[n - 2] == "at" && word.contains(':') => "12:02".to_owned(),
        _ if *word == normal.login => "alice".to_owned(),
        _ => (*word).to_owned(),
    });
    calmed.collect::<Vec<_>>().join(" ")
}

/// A slow machine is no other scene.
fn whole_minutes(seconds: f64) -> i64 {
    (seconds / 60.0).round() as i64 * 60
}

/// "02:00:01.5" in seconds.
fn interval(value: &str) -> Option<f64> {
    let parts: Vec<f64> = value.split(':').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    match parts[..] {
        [hours, minutes, seconds] => Some(hours * 3600.0 + minutes * 60.0 + seconds),
        _ => None,
    }
}

/// What psql would print.
fn aligned(header: &[String], rows: &[Vec<String>]) -> String {
    let width =
        |n: usize| rows.iter().map(|row| row[n].chars().count()).chain([header[n].chars().count()]).max().unwrap();
    let is_number = |n: usize| rows.iter().all(|row| row[n].is_empty() || row[n].parse::<f64>().is_ok());
    let columns: Vec<(usize, bool)> = (0..header.len()).map(|n| (width(n), is_number(n) && !rows.is_empty())).collect();
    let line = |cells: Vec<String>| format!(" {}", cells.join(" | ")).trim_end().to_owned() + "\n";
    let titles = header.iter().zip(&columns).map(|(title, (width, _))| format!("{title:^width$}")).collect();
    let rule: Vec<String> = columns.iter().map(|(width, _)| "-".repeat(width + 2)).collect();
    let mut text = line(titles) + &rule.join("+") + "\n";
    for row in rows {
        let cells = row
            .iter()
            .zip(&columns)
            .map(|(cell, (width, number))| if *number { format!("{cell:>width$}") } else { format!("{cell:<width$}") });
        text.push_str(&line(cells.collect()));
    }
    let count = rows.len();
    text + &format!("({count} row{})\n", if count == 1 { "" } else { "s" })
}

async fn answer(client: &Client, command: &str, normal: &Normal) -> String {
    let now: DateTime<Utc> = client.query_one("SELECT clock_timestamp()", &[]).await.unwrap().get(0);
    let messages = client.simple_query(command).await.unwrap_or_else(|error| panic!("{command}: {error:?}"));
    let mut header: Vec<String> = Vec::new();
    let mut rows = Vec::new();
    for message in &messages {
        match message {
            SimpleQueryMessage::RowDescription(columns) => {
                header = columns.iter().map(|c| c.name().to_owned()).collect()
            }
            SimpleQueryMessage::Row(row) => {
                rows.push((0..row.len()).map(|n| calm(row.get(n).unwrap_or_default(), now, normal)).collect());
            }
            _ => {}
        }
    }
    aligned(&header, &rows)
}

/// The document with every output as it is now.
async fn played(client: &Client, document: &str, normal: &Normal) -> String {
    let mut text = String::new();
    let mut lines = document.lines();
    while let Some(line) = lines.next() {
        text.push_str(&format!("{line}\n"));
        if line != FENCE {
            continue;
        }
        let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        let mut command = String::new();
        for line in block {
            if command.is_empty() && !line.starts_with(PROMPT) {
                continue;
            }
            text.push_str(&format!("{line}\n"));
            command.push_str(&format!("{}\n", line.strip_prefix(PROMPT).unwrap_or(line)));
            if line.ends_with(';') {
                text.push_str(&answer(client, &command, normal).await);
                text.push('\n');
                command.clear();
            }
        }
        text.truncate(text.trim_end().len());
        text.push_str("\n```\n");
    }
    text
}

#[tokio::test]
async fn the_transcripts_in_the_sql_page_are_what_an_operator_sees() {
    let database = postgres::database().await;
    let admin = database.connect().await;
    admin.run(SCENE).await;
    let operator = database.connect_as_member_of("outboxd_operator").await;
    operator.run("SET timezone = 'UTC'").await;
    let document = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/sql.md")).unwrap();
    let minute: DateTime<Utc> = admin.value("SELECT max(minute) FROM outboxd.statistics_minute").await;
    let normal = Normal { login: format!("outboxd_operator_login_{}", database.name), minute };
    let wanted = played(&operator, &document, &normal).await;
    golden::assert_is_current("docs/sql.md", &wanted);
}

#[tokio::test]
async fn every_public_view_and_action_is_in_the_sql_page() {
    let document = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/sql.md")).unwrap();
    let client = postgres::database().await.connect().await;
    let names = "SELECT c.relname::text FROM pg_class c WHERE c.relnamespace = 'outboxd'::regnamespace AND c.relkind = 'v' AND left(c.relname, 1) <> '_'
                 UNION SELECT p.proname::text FROM pg_proc p WHERE p.pronamespace = 'outboxd'::regnamespace AND has_function_privilege('outboxd_operator', p.oid, 'EXECUTE') AND left(p.proname, 1) <> '_'";
    for name in client.values::<String>(names).await {
        assert!(document.contains(&format!("outboxd.{name}")), "docs/sql.md does not speak of outboxd.{name}");
    }
}
