//! What a row holds must not write on the screen of whoever looks at it: every operators' command, with rows that try.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio_postgres::Client;

use crate::support::command::{Ran, outboxd};
use crate::support::postgres::{self, Database};
use crate::support::sql::Sql;

/// Colours, a title, a cleared screen, a line of ours forged, C1, marks of direction.
const HOSTILE: &str = "a\u{1b}[32mok\u{1b}]0;title\u{7}\u{1b}[2J\rb\u{8}\u{7f}\u{9b}31m\u{85}\nok      fine\u{202e}c\u{2066}\u{200f}\u{61c}\u{200e}\u{2069}\t\u{1}";

/// Each text of a row that some command prints is hostile.
const ROWS: &str = "
INSERT INTO outboxd.notification_log (topic, recipient, payload, dedup_key, ordering_key, headers, status, finished_at, failed_at, error, http_status, channel, provider_id, attempts)
SELECT h, h, jsonb_build_object(h, h), h || n, h, jsonb_build_object(h, h), 'FAILED', now(), now(), h, 503, h, h, 4 FROM hostile, generate_series(1, 3) n;
INSERT INTO outboxd.attempt (notification_id, token, number, started_at, duration_ms, outcome, http_status, channel, error, response)
SELECT 1, 1, 1, now(), 12, 'failed', 503, h, h, h FROM hostile;
INSERT INTO outboxd.instance (ttl, pid, roles, queue_kind, host, version) SELECT '1 h', 7, ARRAY[h], h, h, h FROM hostile;
INSERT INTO outboxd.channel_state (channel, origin, held_until, reason, openings) SELECT h, h, now() + interval '1 h', 'failures', 1 FROM hostile;
INSERT INTO outboxd.statistics_channel SELECT date_trunc('minute', now()), h, h, 1, 1, 0, h, now() FROM hostile;
INSERT INTO outboxd.statistics_minute VALUES (date_trunc('minute', now()), 0, 5, 5);
INSERT INTO outboxd.statistics_topic SELECT date_trunc('minute', now()), h, 1, 0, 1 FROM hostile;
INSERT INTO outboxd.statistics_span SELECT date_trunc('minute', now()), 'notify', h, '', 10, 5 FROM hostile;
INSERT INTO outboxd.bulk_action (action, filter, actor, matched, error) SELECT 'retry', jsonb_build_object('topic', h), h, 5, h FROM hostile;
INSERT INTO outboxd.schedule (name, cron, timezone, topic, audience, lead, spread, catch_up, error) SELECT h, '0 9 * * *', 'UTC', h, h, '1 min', '0', '1 h', h FROM hostile;
SELECT outboxd.notify(h || 'waits', h, '{}') FROM hostile;
SELECT outboxd.pause(h) FROM hostile;
";

async fn hostile_rows(database: &Database) -> Client {
    let client = database.connect().await;
    let literal = HOSTILE.replace('\'', "''");
    client.run(&format!("CREATE TEMP TABLE hostile AS SELECT '{literal}'::text AS h")).await;
    client.run(ROWS).await;
    client
}

fn unfit(text: &str) -> Vec<char> {
    let is_mark =
        |c: char| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' | '\u{61c}');
    text.chars().filter(|c| (c.is_control() && *c != '\n') || is_mark(*c)).collect()
}

#[tokio::test]
async fn no_command_prints_control_characters_or_marks_of_direction_from_a_row() {
    let database = postgres::database().await;
    let client = hostile_rows(&database).await;
    let ask = async |args: &[&str]| -> Ran {
        let routes = [("OUTBOXD_CHANNELS_PUSH_URL", "https://a.example"), ("OUTBOXD_ROUTES_ORDERS_CHANNELS", "push")];
        outboxd(&database.url(), args, &routes).await
    };
    let mut wrong = Vec::new();
    for args in [
        &["status"][..],
        &["status", "--json"],
        &["doctor"],
        &["doctor", "--json"],
        &["dead", "list"],
        &["dead", "list", "--json"],
        &["dead", "show", "1"],
        &["dead", "show", "1", "--json"],
        &["dead", "retry", "4"],
        &["dead", "retry", "--topic", HOSTILE, "--dry-run"],
        &["dead", "list", "--since", &format!("-{HOSTILE}")],
        &["dead", "discard", "--topic", HOSTILE, "--yes"],
        &["find", HOSTILE],
        &["find", HOSTILE, "--json"],
        &["send", HOSTILE, HOSTILE, "{}", "--dedup-key", HOSTILE],
        &["send", "t", "r", "{}", "--header", &format!("traceparent={HOSTILE}"), "--json"],
        &["send", HOSTILE, &HOSTILE.repeat(99), "{}"],
        &["schedule", "list"],
        &["schedule", "list", "--json"],
        &["schedule", "pause", HOSTILE],
        &["schedule", "resume", HOSTILE],
        &["schedule", "create", HOSTILE, "0 9 * * *", HOSTILE, HOSTILE, HOSTILE],
        &["schedule", "drop", HOSTILE],
        &["schedule", "drop", HOSTILE],
        &["check"],
        &["check", "--json"],
        &["migrate", "--status"],
    ] {
        let ran = ask(args).await;
        let found = unfit(&ran.all());
        if !found.is_empty() {
            wrong.push(format!("{}: {:?}", args[..args.len().min(3)].join(" ").escape_debug(), found));
        }
        if args.contains(&"--json") {
            for line in ran.out.lines().filter(|_| args[0] == "send") {
                serde_json::from_str::<serde_json::Value>(line).expect("JSON");
            }
            if args[0] != "send" {
                ran.json();
            }
        }
    }
    assert_eq!(wrong, [""; 0], "\n{}", wrong.join("\n"));
    // What programs read is what the row holds.
    let dead = ask(&["find", HOSTILE, "--json"]).await;
    assert_eq!(dead.json()[0]["topic"].as_str(), Some(HOSTILE));
    drop(client);
}

#[tokio::test]
async fn the_watch_and_the_words_of_a_waiting_send_obey_no_row() {
    let database = postgres::database().await;
    let client = hostile_rows(&database).await;
    let id = crate::support::sql::value::<i64>(&client, "SELECT max(id) FROM outboxd.notification_log").await + 1;
    for args in [&["status", "--watch"][..], &["send", HOSTILE, "r", "{}", "--wait"]] {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_outboxd"));
        command.args(args).env_clear().env("DATABASE_URL", database.url()).stdin(Stdio::null());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true).spawn().unwrap();
        let mut out = child.stdout.take().unwrap();
        let wanted = if args[0] == "send" { "FAILED" } else { "\u{1b}[J" };
        let mut bytes = Vec::new();
        let read = async {
            let mut failed = false;
            while !String::from_utf8_lossy(&bytes).contains(wanted) {
                let seen = String::from_utf8_lossy(&bytes).contains("QUEUED");
                if args[0] == "send" && seen && !failed {
                    let end = "UPDATE outboxd.notification_log SET status = 'FAILED', finished_at = now(), failed_at = now(), error = h, channel = h FROM hostile";
                    client.run(&format!("{end} WHERE id = {id}; DELETE FROM outboxd.outbox WHERE id = {id}")).await;
                    failed = true;
                }
                assert!(out.read_buf(&mut bytes).await.unwrap() > 0, "it ended: {bytes:?}");
            }
        };
        tokio::time::timeout(Duration::from_secs(30), read).await.expect("it says so in time");
        // What was read may end within a character.
        let cut = std::str::from_utf8(&bytes).err().filter(|error| error.error_len().is_none());
        bytes.truncate(cut.map_or(bytes.len(), |error| error.valid_up_to()));
        let text = String::from_utf8(bytes).expect("whole characters");
        // Where the watch begins, where a line and where the screen ends.
        let ours = ["\u{1b}[2J\u{1b}[H", "\u{1b}[H", "\u{1b}[K", "\u{1b}[J"];
        let text = ours.iter().fold(text, |text, sequence| text.replace(sequence, ""));
        assert_eq!(unfit(&text), [' '; 0], "{args:?}: {text:?}");
    }
}
