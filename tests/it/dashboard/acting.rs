//! What the buttons and bulk actions do, asked for without a browser: exactly what their page said.

use std::net::SocketAddr;

use super::pages::HTML;
use crate::support::http::{Answer, ask, get, post_bytes};
use crate::support::sql::Sql;
use crate::support::world::{Carrier, World};

const FORM: &str = "Content-Type: application/x-www-form-urlencoded";

/// What stands in a page between these two, each time.
fn between<'a>(body: &'a str, from: &str, to: &str) -> Vec<&'a str> {
    body.split(from).skip(1).map(|rest| rest.split(to).next().unwrap()).collect()
}

/// As a browser reads an attribute.
fn unescape(text: &str) -> String {
    text.replace("&quot;", "\"").replace("&#x2f;", "/").replace("&#x27;", "'").replace("&amp;", "&")
}

async fn submit(addr: SocketAddr, path: &str, fields: &[(&str, &str)]) -> Answer {
    let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
    post_bytes(addr, path, &[FORM, HTML], body.as_bytes()).await
}

/// Dead letters of causes that begin alike, with and without a channel: how many, channel, HTTP status, error.
const CAUSES: [(i32, &str, &str, &str); 12] = [
    (2, "NULL", "NULL", "'expired'"),
    (3, "'push'", "NULL", "'expired'"),
    (1, "'push'", "NULL", "'expired at noon'"),
    (2, "'push'", "NULL", "'timeout: 5 s'"),
    (5, "'push'", "NULL", "'100%_of: it'"),
    (6, "'push'", "NULL", "'100 xof: it'"),
    (4, "'push'", "503", "'answered 503: busy'"),
    (7, "NULL", "NULL", "NULL"),
    (8, "'push'", "200", "'status 200 OK, not accepted: code 3018'"),
    (9, "'push'", "200", "'status 200 OK, not accepted: code 4000'"),
    (10, "'push'", "200", "'status 200 OK, not accepted'"),
    (11, "'push'", "200", "'status 200 OK, whether it was accepted cannot be told: code 3018'"),
];

fn insert(rows: i32, channel: &str, status: &str, error: &str) -> String {
    format!(
        "INSERT INTO outboxd.notification_log (topic, recipient, payload, status, finished_at, failed_at, channel, http_status, error)
         SELECT 't', 'r', '{{}}', 'FAILED', now(), now(), {channel}, {status}, {error} FROM generate_series(1, {rows})"
    )
}

#[tokio::test]
async fn a_group_of_dead_letters_is_retried_as_it_is_listed_and_nothing_else() {
    let world = World::new(Carrier::Memory).await;
    let mut instance = world.setup.start().await;
    let addr = instance.http_addr().await;
    world.run("SELECT outboxd.pause('t')").await;
    // One that fails only once all was counted.
    world.run(&insert(1, "'push'", "503", "'answered 503: busy'")).await;
    world.run("UPDATE outboxd.notification_log SET status = 'CANCELED', failed_at = NULL").await;
    for (rows, channel, status, error) in CAUSES {
        world.run(&insert(rows, channel, status, error)).await;
    }
    let page = unescape(&get(addr, "/dead", &[HTML]).await.body);
    let counts = between(&page, "<td class=\"num\"><strong>", "<");
    let links = between(&page, "href=\"/bulk/new?", "\"");
    let (links, discards): (Vec<&str>, Vec<&str>) = links.iter().partition(|link| link.starts_with("action=retry&"));
    assert_eq!((counts.len(), links.len(), discards.len()), (CAUSES.len(), CAUSES.len(), CAUSES.len()), "{page}");
    let mut forms = Vec::new();
    for (count, link) in counts.iter().zip(links) {
        let preview = get(addr, &format!("/bulk/new?{link}"), &[HTML]).await.body;
        assert_eq!(between(&preview, "class=\"big\">", "<"), [*count], "{link}");
        forms.push(unescape(between(&preview, "name=\"filter\" value=\"", "\"")[0]));
    }
    let changed = "UPDATE outboxd.notification_log SET status = 'FAILED', failed_at = clock_timestamp() WHERE id = 1";
    world.run(changed).await;
    for (rows, channel, status, error) in CAUSES {
        world.run(&insert(rows, channel, status, error)).await;
    }
    for (count, filter) in counts.iter().zip(&forms) {
        let waiting: i64 = world.count("outbox").await;
        let fields = [("action", "retry"), ("filter", filter), ("matched", count), ("typed", count)];
        let answer = submit(addr, "/bulk", &fields).await;
        assert_eq!((answer.status, answer.header("location")), (303, Some("/dead")), "{answer:?}");
        let now: i64 = world.count("outbox").await;
        assert_eq!((now - waiting).to_string(), *count, "{filter}");
    }
    let left = "dead_letters";
    let since = 1 + CAUSES.iter().map(|(rows, ..)| i64::from(*rows)).sum::<i64>();
    assert_eq!(world.count(left).await, since, "what failed since is still there");
    let page = get(addr, &format!("/bulk/new?{}", discards[0]), &[HTML]).await.body;
    let (count, filter) =
        (between(&page, "class=\"big\">", "<")[0], between(&page, "name=\"filter\" value=\"", "\"")[0]);
    let filter = &*unescape(filter);
    assert!(page.contains(&format!("Discard {count}</button>")), "{page}");
    let fields = [("action", "discard"), ("filter", filter), ("matched", count), ("typed", count)];
    assert_eq!(submit(addr, "/bulk", &fields).await.header("location"), Some("/dead"));
    assert_eq!(world.count(left).await, since - count.parse::<i64>().unwrap());
}

/// Who may act and not see what a provider said gets groups of what he may see, and no word more by searching for it.
#[tokio::test]
async fn dead_letters_are_grouped_by_what_their_reader_may_see_of_the_cause() {
    let mut world = World::new(Carrier::Memory).await;
    world.setup = world
        .setup
        .set("tokens.ops.token", "operate-operate-operate")
        .set("tokens.ops.scope", "operate")
        .set("tokens.ops.payloads", false);
    let mut instance = world.setup.start().await;
    let addr = instance.http_addr().await;
    for (rows, channel, status, error) in CAUSES.into_iter().filter(|(.., status, _)| *status == "200") {
        world.run(&insert(rows, channel, status, error)).await;
    }
    let ops = [HTML, "Authorization: Bearer operate-operate-operate"];
    let page = unescape(&get(addr, "/dead", &ops).await.body);
    assert_eq!(between(&page, "<td class=\"num\"><strong>", "<"), ["17", "11", "10"], "{page}");
    assert!(!page.contains("3018") && !page.contains("4000"), "{page}");
    let links = between(&page, "href=\"/bulk/new?", "\"");
    for (count, link) in ["17", "11", "10"].iter().zip(links.iter().filter(|link| link.starts_with("action=retry&"))) {
        let preview = get(addr, &format!("/bulk/new?{link}"), &ops).await.body;
        assert_eq!(between(&preview, "class=\"big\">", "<"), [*count], "{link}");
    }
    let found = get(addr, "/dead?name=3018", &ops).await.body;
    assert!(found.contains("Nothing matches"), "{found}");
}

#[tokio::test]
async fn a_bulk_action_that_was_not_counted_or_not_confirmed_is_refused() {
    let world = World::new(Carrier::Memory).await;
    let mut instance = world.setup.start().await;
    let addr = instance.http_addr().await;
    for (action, filter, typed) in [
        ("retry", "{}", "1"),
        ("retry", "{\"id_max\": 9}", "1"),
        ("cancel", "{}", "1"),
        ("explode", "{\"id_max\": 9}", "1"),
        ("cancel", "{\"id_max\": 9}", "2"),
        ("cancel", "{\"id_max\": 9}", ""),
    ] {
        let fields = [("action", action), ("filter", filter), ("matched", "1"), ("typed", typed)];
        let said = submit(addr, "/bulk", &fields).await;
        assert!(said.header("set-cookie").unwrap().contains("outboxd_said=bad"), "{action} {filter}: {said:?}");
    }
    assert_eq!(world.count("audit").await, 0);
}

#[tokio::test]
async fn a_bulk_action_is_offered_only_where_it_takes_the_filters_of_the_list() {
    let world = World::new(Carrier::Memory).await;
    let mut instance = world.setup.start().await;
    let addr = instance.http_addr().await;
    for (filters, is_offered) in [
        ("status=QUEUED", true),
        ("status=FAILED&topic=orders&recipient=r1", true),
        ("status=QUEUED&since=1h", false),
        ("status=FAILED&q=%7B%22n%22%3A1%7D", false),
        ("status=SENT", false),
    ] {
        let page = get(addr, &format!("/notifications?{filters}"), &[HTML]).await;
        let has = |button: &str| page.body.contains(&format!("{button}…</a>"));
        let offered = has("Retry all that match") || has("Cancel all that wait or are scheduled");
        assert_eq!((page.status, offered), (200, is_offered), "{filters}");
    }
    assert_eq!(instance.drain().await, 0);
}

#[tokio::test]
async fn schedules_are_paused_resumed_and_dropped() {
    let world = World::new(Carrier::Memory).await;
    let mut instance = world.setup.start().await;
    let addr = instance.http_addr().await;
    let create = "CREATE VIEW public.audience AS SELECT 'r'::text AS recipient, '{}'::jsonb AS payload;
                  GRANT SELECT ON public.audience TO outboxd_audience;
                  SELECT outboxd.create_schedule('daily <quiz>', '@yearly', 'UTC', 't', 'public.audience')";
    world.run(create).await;
    let name = [("name", "daily <quiz>"), ("back", "/schedules")];
    for (verb, offered) in [("pause_schedule", true), ("resume_schedule", false), ("drop_schedule", true)] {
        let page = get(addr, "/schedules", &[HTML]).await.body;
        assert_eq!(page.contains("/act/pause_schedule"), offered, "{verb}: {page}");
        assert_eq!(page.contains("/act/resume_schedule"), !offered, "{verb}: {page}");
        assert!(page.contains("/act/drop_schedule") && !page.contains("<quiz>"), "{verb}: {page}");
        let now = get(addr, "/", &[HTML]).await.body;
        assert_eq!(now.contains("/act/resume_schedule"), !offered, "{verb}: {now}");
        let said = submit(addr, &format!("/act/{verb}"), &name).await;
        assert_eq!((said.status, said.header("location")), (303, Some("/schedules")), "{said:?}");
        assert!(said.header("set-cookie").unwrap().contains("outboxd_said=ok"), "{said:?}");
    }
    let audit = "SELECT concat_ws(' ', action, subject, token) FROM outboxd.audit WHERE token IS NOT NULL ORDER BY id";
    let wanted = ["pause", "resume", "drop"].map(|verb| format!("{verb}_schedule daily <quiz> local"));
    assert_eq!(world.values::<String>(audit).await, wanted);
}

#[tokio::test]
async fn what_an_action_said_is_there_until_somebody_reads_the_page() {
    let world = World::new(Carrier::Memory).await;
    let mut instance = world.setup.start().await;
    let addr = instance.http_addr().await;
    let said = submit(addr, "/act/pause_topic", &[("name", "nobody"), ("back", "/topics")]).await;
    let cookie = said.header("set-cookie").and_then(|cookie| cookie.split(';').next()).expect("it says something");
    let headers = [HTML, &*format!("Cookie: {cookie}")];
    // The script of an open page asks so whether its session still holds.
    let asked = ask(addr, "HEAD", "/topics", &headers).await;
    assert_eq!((asked.status, asked.header("set-cookie")), (200, None), "{asked:?}");
    let read = get(addr, "/topics", &headers).await;
    assert!(read.body.contains("nobody"), "{read:?}");
    assert!(read.header("set-cookie").is_some_and(|cookie| cookie.starts_with("outboxd_said=;")), "{read:?}");
}
