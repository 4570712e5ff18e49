//! Many topics and origins: nothing is out of reach, and no figure is of some of them only.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use outboxd::store::Store;
use outboxd::store::dashboard::{Origins, Part};

use super::pages::HTML;
use super::{Desk, pictures};
use crate::leader::config;
use crate::support::http::get;
use crate::support::provider::Reply;
use crate::support::sql;
use crate::support::world::{Carrier, World};

fn seed(topics: usize, origins: usize) -> String {
    include_str!("many.sql").replace("$topics", &topics.to_string()).replace("$origins", &origins.to_string())
}

/// A platform with so many tenants, whose instance has counted them.
async fn platform(topics: usize, origins: usize) -> Desk {
    let desk = Desk::new(World::new(Carrier::Memory).await).await;
    sql::run(&desk.world.app, &seed(topics, origins)).await;
    let counted = format!(
        "SELECT count(DISTINCT topic) >= {topics} FROM outboxd.snapshot_count, outboxd.snapshot WHERE taken_at > now() - interval '1 min'"
    );
    sql::until(&desk.world.app, &counted).await;
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
    assert_eq!(sql::values::<String>(&desk.world.app, paused).await, ["tenant-00997", "zz-paused"]);
    // One that nothing is known of, before it begins: over HTTP it might be mistyped.
    let addr = desk.instance.http_addr().await;
    let unknown = get(addr, "/topics?name=campaign", &[HTML]).await;
    let sql = "SELECT outboxd.pause('campaign')";
    assert!(
        unknown.body.contains("No topic called <strong>campaign</strong>") && unknown.body.contains(sql),
        "{}",
        unknown.body
    );
    sql::run(&desk.world.app, "SELECT outboxd.pause('campaign')").await;
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
    let one_each = "SELECT outboxd.notify('t' || n, 'r', '{}') FROM generate_series(1, 300) n";
    sql::run(&world.app, one_each).await;
    world.until_ended().await;
    sql::until(&world.app, "SELECT coalesce(sum(sent), 0) = 300 FROM outboxd.throughput").await;
    let alone = "SELECT count(DISTINCT topic) FROM outboxd.latency WHERE sent = 1 AND topic <> '(other)'";
    assert_eq!(sql::value::<i64>(&world.app, alone).await, 300);
}

#[tokio::test]
async fn nothing_is_cut_off_beside_1_000_topics_on_a_wide_or_a_narrow_screen() {
    let mut desk = platform(1_000, 300).await;
    sql::run(&desk.world.app, include_str!("many_more.sql")).await;
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
    sql::until(&desk.world.app, "SELECT is_large FROM outboxd.snapshot").await;
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
        for (page, origins) in [("channels", Origins::Whole), ("channels, masked", Origins::Masked)] {
            let began = Instant::now();
            store.dashboard_channels(&all, origins).await.unwrap();
            took(page, began);
        }
        let began = Instant::now();
        store.dashboard_dead_groups(&all, None).await.unwrap();
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
