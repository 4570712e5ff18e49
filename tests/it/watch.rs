//! What commands show on a real terminal of some size: `outboxd status --watch`, and texts that are broken into lines.

use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use nix::pty::{Winsize, openpty};
use unicode_width::UnicodeWidthStr;

use crate::support::postgres::{self, Database};
use crate::support::sql::Sql;

/// Forty topics, thirty instances with long names, failing channels: more than a small window can show.
const CROWD: &str = "
SELECT outboxd.notify('a.topic.with.quite.a.long.name.' || n, 'r', '{}') FROM generate_series(1, 40) n;
SELECT outboxd.notify('주문-알림톡-발송-주제', 'r', '{}');
INSERT INTO outboxd.instance (ttl, pid, roles, queue_kind, host, version)
SELECT '1 h', n, '{worker}', 'stream', 'outboxd-7d9f8b6c5d-abcde.a-name-space.cluster-' || n, '0.1.0' FROM generate_series(1, 30) n;
INSERT INTO outboxd.channel_state (channel, origin, held_until, reason, openings)
SELECT 'webhook', 'https://customer-' || n || '.a-long-domain.example:8443', now() + interval '1 h', 'failures', 1 FROM generate_series(1, 9) n;
INSERT INTO outboxd.statistics_minute SELECT date_trunc('minute', now()) - n * interval '1 min', 0, 5, 5 FROM generate_series(0, 9) n;
SELECT outboxd.pause('a topic that is paused ' || n) FROM generate_series(1, 5) n;
";

/// One frame of the watch on a terminal of this size, as lines without escape sequences.
fn frame(database: &Database, columns: u16, rows: u16) -> Vec<String> {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    let terminal = openpty(&size, None).unwrap();
    let mut watch = Command::new(env!("CARGO_BIN_EXE_outboxd"))
        .args(["status", "--watch"])
        .env_clear()
        .env("DATABASE_URL", database.url())
        .stdin(Stdio::null())
        .stdout(terminal.slave)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut master = std::fs::File::from(terminal.master);
    let (tell, heard) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        // An error once the other end is closed.
        while let Ok(length) = master.read(&mut buffer) {
            if length == 0 || tell.send(buffer[..length].to_vec()).is_err() {
                return;
            }
        }
    });
    let (mut bytes, deadline) = (Vec::new(), Instant::now() + Duration::from_secs(30));
    // From the top to the end of what is below it.
    while !String::from_utf8_lossy(&bytes).contains("\x1b[J") {
        let left = deadline.saturating_duration_since(Instant::now());
        bytes.extend(heard.recv_timeout(left).expect("a frame in time"));
    }
    watch.kill().unwrap();
    watch.wait().unwrap();
    drop(heard);
    reader.join().unwrap();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (_, rest) = text.split_once("\x1b[H").expect("it begins at the top");
    let (frame, _) = rest.split_once("\x1b[J").expect("it ends");
    assert!(frame.ends_with("\r\n"), "the cursor stands below: {frame:?}");
    frame.trim_end_matches("\r\n").split("\r\n").map(without_sequences).collect()
}

/// The line as it is seen.
fn without_sequences(line: &str) -> String {
    let mut parts = line.split('\x1b');
    let first = parts.next().unwrap_or_default().to_owned();
    first + &parts.map(|part| part.split_once(['m', 'K']).map_or("", |(_, seen)| seen)).collect::<String>()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_watch_fits_windows_of_any_size_and_says_what_it_leaves_out() {
    let database = postgres::database().await;
    database.connect().await.run(CROWD).await;
    for (columns, rows) in [(80, 24), (120, 30), (60, 12), (200, 50), (40, 8)] {
        let lines = frame(&database, columns, rows);
        let size = format!("{columns}×{rows}");
        assert!(lines.len() < usize::from(rows), "{size}: {} lines:\n{}", lines.len(), lines.join("\n"));
        for line in &lines {
            assert!(line.width() < usize::from(columns), "{size}: {} columns: {line}", line.width());
        }
        let text = lines.join("\n");
        assert!(text.contains("HEALTH") && (rows < 10 || text.contains("QUEUE")), "{size}:\n{text}");
        assert!(text.contains('…'), "{size}: something is left out:\n{text}");
    }
    let usual = frame(&database, 80, 24);
    // A table that does not fit goes as a whole, so some lines may stay free.
    assert!(usual.len() >= 20, "the room is used:\n{}", usual.join("\n"));
    for part in ["INSTANCES", "HEARTBEAT", "CHANNELS", "COUNT"] {
        assert!(usual.iter().any(|line| line.contains(part)), "{part} is missing:\n{}", usual.join("\n"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_with_room_shows_everything() {
    let database = postgres::database().await;
    database.connect().await.run("SELECT outboxd.notify('quiz', 'r', '{}')").await;
    let text = frame(&database, 200, 60).join("\n");
    for part in ["HEALTH", "QUEUE", "OUTBOX", "THROUGHPUT", "LATENCY", "CHANNELS", "INSTANCES", "no instance runs"] {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
    assert!(!text.contains('…'), "nothing is left out:\n{text}");
}

/// All that a command prints on a terminal so wide, as lines without escape sequences.
fn printed(args: &[&str], env: &[(&str, &str)], columns: u16) -> Vec<String> {
    let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    let terminal = openpty(&size, None).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_outboxd"));
    command.args(args).env_clear().envs(env.iter().copied()).stdin(Stdio::null()).stderr(Stdio::null());
    let mut child = command.stdout(terminal.slave).spawn().unwrap();
    // It holds the other end of the terminal too.
    drop(command);
    let (mut bytes, mut buffer, mut master) = (Vec::new(), [0; 4096], std::fs::File::from(terminal.master));
    while let Ok(length @ 1..) = master.read(&mut buffer) {
        bytes.extend_from_slice(&buffer[..length]);
    }
    child.wait().unwrap();
    String::from_utf8_lossy(&bytes).split("\r\n").map(without_sequences).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_check_and_doctor_find_fits_the_window_and_is_one_line_in_a_pipe() {
    let database = postgres::database().await;
    database.connect().await.run("SELECT outboxd.pause('a.topic.of.some.length')").await;
    let url = database.url();
    let env = [
        ("DATABASE_URL", &*url),
        ("OUTBOXD_CHANNELS_PUSH_URL", "https://a.example"),
        ("OUTBOXD_ROUTES_DEFAULT_CHANNELS", "push"),
    ];
    for command in ["check", "doctor"] {
        let lines = printed(&[command], &env, 60);
        // Above the findings stands the table of settings, which has a width of its own.
        let first = lines.iter().position(|line| line.starts_with("ok      postgres")).unwrap_or(0);
        let found = &lines[first..];
        let wide = found.iter().find(|line| line.width() >= 60 && line.trim().contains(' '));
        assert_eq!(wide, None, "{command}:\n{}", lines.join("\n"));
        assert!(found.iter().any(|line| line.starts_with(&" ".repeat(18))), "{command}:\n{}", lines.join("\n"));
        let piped = Command::new(env!("CARGO_BIN_EXE_outboxd")).arg(command).env_clear().envs(env).output().unwrap();
        let piped = String::from_utf8(piped.stdout).unwrap();
        assert!(piped.lines().any(|line| line.width() > 80), "{piped}");
    }
}
