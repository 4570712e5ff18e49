//! Many sessions on one instance: what they cost, and when the last one hears. `OUTBOXD_LIVE_SESSIONS=5000` for more;
//! each takes an open file here and there. `OUTBOXD_BIN` for another build of outboxd.

use std::time::{Duration, Instant};

use futures_util::future::join_all;

use crate::support::sql::Sql;

use super::Scene;
use super::client::Client;

const ROUNDS: usize = 5;

/// Resident memory of a process, in bytes.
fn resident(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().expect("a number") * 1024
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_sessions_hear_an_event_soon_and_cost_little() {
    let asked = std::env::var("OUTBOXD_LIVE_SESSIONS").ok().and_then(|count| count.parse().ok());
    let count: usize = asked.unwrap_or(500);
    let scene = Scene::with(|world| world.set("live.sessions_max", count as i64)).await;
    let before = resident(scene.instance.pid());
    let started = Instant::now();
    let mut clients: Vec<Client> = Vec::new();
    while clients.len() < count {
        let next = (clients.len()..count).take(100).map(|_| scene.connect("topic=order"));
        clients.extend(join_all(next).await);
    }
    join_all(clients.iter_mut().map(Client::ready)).await;
    let opened = started.elapsed();
    let idle = resident(scene.instance.pid());
    let mut last = Vec::new();
    for _ in 0..ROUNDS {
        let sent = Instant::now();
        scene.world.run("SELECT outboxd.publish('order', 'k', to_jsonb(repeat('x', 200)))").await;
        join_all(clients.iter_mut().map(|client| client.events(1))).await;
        last.push(sent.elapsed());
    }
    last.sort();
    let after = resident(scene.instance.pid());
    scene.world.run("SELECT outboxd.publish('order', 'k', to_jsonb(repeat('x', 200000)))").await;
    join_all(clients.iter_mut().map(|client| client.events(1))).await;
    let long = resident(scene.instance.pid());
    let mb = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    println!(
        "{count} sessions opened in {opened:?}; RSS {:.1} MB before, {:.1} MB idle, {:.1} MB after {ROUNDS} events, \
         {:.1} MB after one of 200 KB; \
         publish() to the last of them: median {:?}, worst {:?}",
        mb(before),
        mb(idle),
        mb(after),
        mb(long),
        last[ROUNDS / 2],
        last[ROUNDS - 1]
    );
    let cost = after.saturating_sub(before) / count as u64;
    assert!(cost < 32 << 10, "a session costs {cost} bytes");
    let cost = long.saturating_sub(before) / count as u64;
    assert!(cost < 64 << 10, "a session costs {cost} bytes once it was sent a long message");
    assert!(last[ROUNDS / 2] < Duration::from_secs(5), "{last:?}");
}
