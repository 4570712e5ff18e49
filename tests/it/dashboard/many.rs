//! Many topics and origins: nothing is out of reach, and no figure is of some of them only.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use outboxd::store::Store;
use outboxd::store::dashboard::{Part, Told};

use super::pages::HTML;
use super::{Desk, pictures};
use crate::leader::config;
use crate::support::http::get;
use crate::support::provider::Reply;
use crate::support::sql::Sql;
use crate::support::world::{Carrier, World};

fn seed(topics: usize, origins: usize) -> String {
    include_str!("many.sql").replace("$topics", &topics.to_string()).replace("$origins", &origins.to_string())
}

/// A platform with so many tenants, whose instance has counted them.
async fn platform(topics: usize, origins: usize) -> Desk {
    let desk = Desk::new(World::new(Carrier::Memory).await).await;
    desk.world.run(&seed(topics, origins)).await;
    let counted = format!(
        "SELECT count(DISTINCT topic) >= {topics} FROM outboxd.snapshot_count, outboxd.snapshot WHERE taken_at > now() - interval '1 min'"
    );
    desk.world.until(&counted).await;
    desk
}

/// What stands between `start` and the next `end`, wherever it does.
fn between(body: &str, start: &str, end: &str) -> Vec<String> {
    body.split(start).skip(1).filter_map(|rest| Some(rest.split_once(end)?.0.to_owned())).collect()
}

/// Follows "More" from a page to the last one: what each of them lists.
async fn walk(addr: SocketAddr, path: &str, start: &str, end: &str) -> Vec<Vec<String>> {
    let mut pages = Vec::new();
    let mut next = Some(path.to_owned());
    while let Some(path) = next {
        let page = get(addr, &path, &[HTML]).await;
        assert_eq!(page.status, 200, "{path}: {page:?}");
        pages.push(between(&page.body, start, end));
        next = between(&page.body, "rel=\"next\" href=\"", "\"").first().map(|link| {
            // As a browser reads an attribute.
            link.replace("&amp;", "&").replace("&#x2f;", "/").replace("&quot;", "\"")
        });
        assert!(pages.len() < 1_000, "the pages end");
    }
    pages
}

#[tokio::test]
async fn every_topic_is_on_one_page_the_worst_on_the_first() {
    let mut desk = platform(1_000, 10).await;
    let addr = desk.instance.http_addr().await;
    let pages = walk(addr, "/topics", "<td class=\"wrap\"><a href=\"/notifications?topic=", "\"").await;
    let worst: Vec<&str> = pages[0].iter().take(3).map(String::as_str).collect();
    assert_eq!(worst, ["zz-paused", "zz-failing", "zz-oldest"]);
    let all: Vec<&String> = pages.iter().flatten().collect();
    let different: BTreeSet<&String> = all.iter().copied().collect();
    assert_eq!((all.len(), different.len()), (1_004, 1_004), "each once");
    let dead = all.iter().position(|topic| *topic == "zz-most-dead").unwrap();
    assert_eq!(dead, 3 + 333, "after what waits, before what has fewer dead letters");
    let first = get(addr, "/topics", &[HTML]).await;
    assert!(first.body.contains("1,004 topics, 1 paused"), "the total is exact: {}", first.body);
    desk.end().await;
}

#[tokio::test]
async fn any_topic_is_found_by_name_and_paused() {
    let mut desk = platform(1_000, 10).await;
    let browser = &mut desk.browser;
    browser.set_scripts(false).await;
    browser.open("/topics").await;
    browser.set_scripts(true).await;
    browser.open("/topics").await;
    browser.evaluate("document.querySelector('[name=name]').value = 'TENANT-00997'").await;
    browser.follow("document.querySelector('.find').requestSubmit()").await;
    assert_eq!(browser.evaluate("document.querySelectorAll('[data-row]').length").await, 1);
    browser.click("details.confirm summary").await;
    browser.follow("document.querySelector('form[action=\"/act/pause_topic\"] button').click()").await;
    browser.until_says("Topic tenant-00997 is paused.").await;
    assert_eq!(browser.evaluate("location.search").await, "?name=TENANT-00997", "it leads back to where one was");
    let paused = "SELECT name FROM outboxd.topic WHERE paused_at IS NOT NULL ORDER BY name";
    assert_eq!(desk.world.values::<String>(paused).await, ["tenant-00997", "zz-paused"]);
    // One that nothing is known of, before it begins: over HTTP it might be mistyped.
    let addr = desk.instance.http_addr().await;
    let unknown = get(addr, "/topics?name=campaign", &[HTML]).await;
    let sql = "SELECT outboxd.pause('campaign')";
    assert!(
        unknown.body.contains("No topic called <strong>campaign</strong>") && unknown.body.contains(sql),
        "{}",
        unknown.body
    );
    desk.world.run("SELECT outboxd.pause('campaign')").await;
    assert!(get(addr, "/topics?name=CAMPAIGN", &[HTML]).await.body.contains("/act/resume_topic"));
    desk.end().await;
}

#[tokio::test]
async fn every_origin_is_on_one_page_the_worst_on_the_first() {
    let mut desk = platform(10, 1_000).await;
    let addr = desk.instance.http_addr().await;
    let pages = walk(addr, "/channels", "<span class=\"mono small\">https:&#x2f;&#x2f;", ":443").await;
    assert_eq!(pages[0][..2], ["zz.example", "customer-01000.example"]);
    let held = get(addr, "/channels?name=zz.example", &[HTML]).await.body;
    let told = [
        "Held since",
        "calls fail: too many failures in a row",
        "The next probe goes out after",
        "Nothing waits for it.",
    ];
    assert!(told.iter().all(|words| held.contains(words)), "{held}");
    let different: BTreeSet<&String> = pages.iter().flatten().collect();
    assert_eq!((pages.iter().flatten().count(), different.len()), (1_001, 1_001), "each once");
    let found = get(addr, "/channels?name=customer-00777", &[HTML]).await;
    assert_eq!(between(&found.body, "<span class=\"mono small\">", "<").len(), 1, "{}", found.body);
    desk.end().await;
}

#[tokio::test]
async fn every_group_of_dead_letters_is_on_one_page_the_largest_on_the_first() {
    let mut desk = platform(300, 10).await;
    let addr = desk.instance.http_addr().await;
    let pages = walk(addr, "/dead", "data-l=\"topic\">", "<").await;
    assert_eq!(pages[0][0], "zz-most-dead");
    let different: BTreeSet<&String> = pages.iter().flatten().collect();
    assert_eq!((pages.iter().flatten().count(), different.len()), (301, 301), "each once");
    desk.end().await;
}

#[tokio::test]
async fn what_300_topics_did_is_counted_by_the_name_of_each() {
    let world = World::new(Carrier::Memory).await;
    world.provider.answer(Reply::ok());
    let _instance = world.setup.start().await;
    world.run("SELECT outboxd.notify('t' || n, 'r', '{}') FROM generate_series(1, 300) n").await;
    world.until_ended().await;
    world.until("SELECT coalesce(sum(sent), 0) = 300 FROM outboxd.throughput").await;
    let alone = "SELECT count(DISTINCT topic) FROM outboxd.latency WHERE sent = 1 AND topic <> '(other)'";
    assert_eq!(world.value::<i64>(alone).await, 300);
}

#[tokio::test]
async fn what_is_not_counted_by_name_has_no_row_no_action_and_no_verdict() {
    let mut desk = platform(3, 3).await;
    let app = &desk.world.app;
    let written = "INSERT INTO outboxd.statistics_topic (minute, topic, sent, failed) VALUES (date_trunc('minute', now()), '(other)', 41, 1);
        INSERT INTO outboxd.statistics_channel (minute, channel, origin, failed) VALUES (date_trunc('minute', now()), 'webhook', '(other)', 43)";
    app.run(written).await;
    let addr = desk.instance.http_addr().await;
    for (path, beyond) in [
        ("/topics", "Beyond these, sent in the last hour: 41, failed: 1, of more topics than"),
        ("/channels", "Beyond these, 43 calls went to more origins than"),
        ("/", ""),
    ] {
        let page = get(addr, path, &[HTML]).await.body;
        assert!(page.contains(beyond) && !page.contains("(other)"), "{path}: {page}");
    }
    for name in ["topics", "channels"] {
        let found = get(addr, &format!("/{name}?name=other"), &[HTML]).await.body;
        assert!(!found.contains("<tr data-row") && !found.contains("/act/pause"), "{name}: {found}");
    }
    desk.end().await;
}

#[tokio::test]
async fn nothing_is_cut_off_beside_1_000_topics_on_a_wide_or_a_narrow_screen() {
    let mut desk = platform(1_000, 300).await;
    desk.world.run(include_str!("many_more.sql")).await;
    let shots = [
        ("/", "many-now", ""),
        ("/topics", "many-topics", ""),
        ("/topics?name=tenant-0099", "many-topics-found", ""),
        ("/topics?name=nobody.has.this", "many-topics-none", ""),
        ("/channels", "many-channels", "document.querySelector('details.confirm').open = true"),
        ("/dead", "many-dead-letters", ""),
        ("/dead?name=zz-most", "many-dead-letters-found", ""),
        ("/schedules", "many-schedules", ""),
        ("/events", "many-events", ""),
        ("/instances", "many-instances", ""),
        ("/bulk", "many-bulk-actions", ""),
    ];
    pictures::look(&mut desk, &shots).await;
    desk.end().await;
}

/// What a page reads; a debug build draws it five times slower than what is shipped.
#[tokio::test]
async fn pages_are_read_within_50_ms_beside_10_000_topics() {
    let desk = platform(10_000, 1_000).await;
    desk.world.until("SELECT is_large FROM outboxd.snapshot").await;
    let store = Store::open(&config(&desk.world.database, &[])).unwrap();
    let all = Part::default();
    let named = Part { name: Some("tenant-09".to_owned()), after: None };
    let mut best = BTreeMap::<&str, Duration>::new();
    for _ in 0..30 {
        let mut took = |page: &'static str, began: Instant| {
            let least = best.entry(page).or_insert(Duration::MAX);
            *least = began.elapsed().min(*least);
        };
        for (page, part) in [("topics", &all), ("topics by name", &named)] {
            let began = Instant::now();
            store.dashboard_topics(part, None).await.unwrap();
            took(page, began);
        }
        let began = Instant::now();
        store.dashboard_channels(&all).await.unwrap();
        took("channels", began);
        let began = Instant::now();
        store.dashboard_dead_groups(&all, None, Told::Whole).await.unwrap();
        took("dead letters", began);
        let began = Instant::now();
        store.dashboard_work().await.unwrap();
        took("work", began);
        let began = Instant::now();
        store.dashboard_health().await.unwrap();
        took("health", began);
    }
    println!("{best:?}");
    assert!(best.values().all(|least| *least < Duration::from_millis(50)), "{best:?}");
    desk.end().await;
}

#[tokio::test]
async fn buttons_of_the_first_page_are_for_the_worst_and_say_what_they_leave_out() {
    let world = World::new(Carrier::Memory).await;
    let mut instance = world.setup.start().await;
    let addr = instance.http_addr().await;
    // For the n-th endpoint n notifications wait.
    let written = "INSERT INTO outboxd.channel_state (channel, origin, held_until, reason)
        SELECT 'webhook', format('https://%s.example:443', n), now() + interval '1 h', 'failures' FROM generate_series(1, 7) n
        UNION ALL SELECT 'whole', '', now() + interval '1 h', 'unauthorized';
        BEGIN; SELECT outboxd.notify('orders', 'r', '{}') FROM generate_series(1, 28);
        UPDATE outboxd.outbox SET retry_at = now() + interval '1 h', waits_for = format('https://%s.example:443', w.n)
          FROM (SELECT n, row_number() OVER () AS place FROM generate_series(1, 7) n, generate_series(1, n)) w WHERE id = w.place; COMMIT;
        SELECT outboxd.pause_channel('c' || n) FROM generate_series(11, 23) n;
        INSERT INTO outboxd.schedule (name, cron, timezone, topic, audience, lead, spread, catch_up, paused_at)
        SELECT 's' || n, '0 9 * * 1', 'UTC', 'orders', 'app.audience', '0', '0', '0', now() FROM generate_series(11, 24) n";
    world.run(written).await;
    let page = get(addr, "/", &[HTML]).await.body.replace("&#x2f;", "/");
    let probed = between(&page, ">Probe ", "<");
    let endpoint = |n: usize| format!("webhook https://{n}.example:443");
    assert_eq!(probed, ["whole".to_owned(), endpoint(7), endpoint(6), endpoint(5), endpoint(4)], "{page}");
    for more in [">3 more<", ">3 more paused channels<", ">4 more paused schedules<"] {
        assert!(page.contains(more), "{more}: {page}");
    }
}
