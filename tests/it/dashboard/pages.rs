//! The pages without a browser: who is let in, what they weigh, what they say while Postgres is away.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::SOON;
use crate::support::browser::Browser;
use crate::support::http::{ask, get, post};
use crate::support::postgres::{self, Database};
use crate::support::proxy::{Fault, Proxy};
use crate::support::sql::Sql;
use crate::support::wait;
use crate::support::world::{Carrier, World};

pub(super) const HTML: &str = "Accept: text/html";
const FORM: &str = "Content-Type: application/x-www-form-urlencoded";
const PAGES: [&str; 10] =
    ["/", "/notifications", "/dead", "/channels", "/topics", "/schedules", "/events", "/instances", "/bulk", "/audit"];
/// A page, over a slow link.
const PAGE_BYTES_MAX: usize = 60 << 10;

#[tokio::test]
async fn every_page_is_small_safe_and_loads_only_from_us() {
    let world = World::new(Carrier::Memory).await;
    let mut instance = world.setup.start().await;
    let addr = instance.http_addr().await;
    world.run(include_str!("scene.sql")).await;
    let mut assets = 0;
    for page in PAGES {
        let answer = get(addr, page, &[HTML]).await;
        assert_eq!(answer.status, 200, "{page}: {answer:?}");
        let policy = answer.header("content-security-policy").unwrap();
        assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{page}: {policy}");
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        assert!(!answer.body.contains("style=") && !answer.body.contains(" onclick"), "{page}");
        assert!(!answer.body.contains("cannot be drawn"), "{page}");
        for path in answer.body.split('"').filter(|text| text.starts_with("/assets/")) {
            let asset = get(addr, path, &[]).await;
            assert_eq!(asset.status, 200, "{path}");
            assert!(asset.header("cache-control").unwrap().contains("immutable"), "{path}");
            assets += asset.body.len();
        }
        assert!(answer.body.len() + assets < PAGE_BYTES_MAX, "{page}: {} bytes and {assets}", answer.body.len());
        assets = 0;
    }
    assert_eq!(get(addr, "/assets/old.css", &[]).await.status, 404);
    assert_eq!(get(addr, "/notifications/999999", &[HTML]).await.status, 404);
    assert_eq!(instance.drain().await, 0);
}

#[tokio::test]
async fn strangers_are_led_to_the_login_and_programs_are_told() {
    let mut world = World::new(Carrier::Memory).await;
    world.setup = world.setup.set("tokens.reader.token", "read-read-read-read").set("tokens.reader.scope", "read");
    let mut instance = world.setup.start().await;
    let addr = instance.http_addr().await;
    for page in PAGES {
        let person = get(addr, page, &[HTML]).await;
        let login = if page == "/" { "/login".to_owned() } else { format!("/login?next=%2F{}", &page[1..]) };
        assert_eq!((person.status, person.header("location")), (303, Some(&*login)), "{page}");
        let program = get(addr, page, &["Accept: application/json"]).await;
        assert_eq!(program.status, 401, "{page}");
        assert_eq!(program.header("content-type"), Some("application/problem+json"));
    }
    assert_eq!(get(addr, "/live?page=/", &["Accept: text/event-stream"]).await.status, 401);
    let login = get(addr, "/login", &[HTML]).await;
    assert!(login.status == 200 && login.body.contains("action=\"/login\""), "{login:?}");
    assert!(get(addr, "/login?failed", &[HTML]).await.body.contains("none of the tokens"));
}

#[tokio::test]
async fn the_login_leads_back_and_a_session_that_is_over_says_so() {
    let mut world = World::new(Carrier::Memory).await;
    world.setup = world.setup.set("tokens.ops.token", "operate-operate-operate").set("tokens.ops.scope", "operate");
    let mut instance = world.setup.start().await;
    let addr = instance.http_addr().await;
    let mut browser = Browser::start(&format!("http://{addr}")).await;
    browser.open("/channels?from=a%20mail").await;
    for token in ["wrong", "operate-operate-operate"] {
        assert_eq!(browser.evaluate("location.pathname").await, "/login");
        browser.evaluate(&format!("document.querySelector('[name=token]').value = '{token}'")).await;
        browser.follow("document.querySelector('form').requestSubmit()").await;
    }
    assert_eq!(browser.evaluate("location.pathname + location.search").await, "/channels?from=a%20mail");
    browser.until("document.querySelector('#live').dataset.state === 'live'").await;
    browser.evaluate("fetch('/logout', {method: 'POST'}).then(r => r.status)").await;
    // Off and on: the next connection is refused.
    browser.press("p").await;
    browser.press("p").await;
    browser.until("document.querySelector('#live').textContent.includes('Logged out')").await;
    let away = post(addr, "/login", &[HTML, FORM], "token=operate-operate-operate&next=//example.com").await;
    assert_eq!((away.status, away.header("location")), (303, Some("/")), "never to another site");
}

#[tokio::test]
async fn a_read_token_sees_no_button_and_cannot_act() {
    let mut world = World::new(Carrier::Memory).await;
    world.setup = world
        .setup
        .set("tokens.reader.token", "read-read-read-read")
        .set("tokens.reader.scope", "read")
        .set("tokens.ops.token", "operate-operate-operate")
        .set("tokens.ops.scope", "operate");
    let mut instance = world.setup.start().await;
    let addr = instance.http_addr().await;
    world.run(include_str!("scene.sql")).await;
    let id: i64 = world.value("SELECT min(id) FROM outboxd.dead_letters").await;
    let mut browser = Browser::start(&format!("http://{addr}")).await;
    browser.open("/login").await;
    browser.evaluate("document.querySelector('[name=token]').value = 'wrong'").await;
    browser.follow("document.querySelector('form').requestSubmit()").await;
    browser.until_says("none of the tokens").await;
    browser.evaluate("document.querySelector('[name=token]').value = 'read-read-read-read'").await;
    browser.follow("document.querySelector('form').requestSubmit()").await;
    browser.until_says("reader").await;
    let one = format!("/notifications/{id}?payload=shown");
    for page in PAGES.iter().filter(|page| **page != "/audit").copied().chain([one.as_str()]) {
        browser.open(page).await;
        assert!(!browser.has("form[action^='/act/'], form[action='/bulk']").await, "{page}");
        assert!(!browser.has("#payload").await, "payloads are for those who may see them");
    }
    browser.until("document.querySelector('#live').dataset.state === 'live'").await;
    assert!(!browser.has("form[action^='/act/']").await, "nor does a button come live");
    let retry = format!(
        "fetch('/act/retry', {{method: 'POST', body: new URLSearchParams({{id: '{id}'}})}}).then(r => r.status)"
    );
    assert_eq!(browser.evaluate(&retry).await, 403);
    let bulk = "fetch('/bulk', {method: 'POST', body: new URLSearchParams({action: 'retry', filter: '{\"id_max\": 9}', typed: '1', matched: '1'})}).then(r => r.status)";
    assert_eq!(browser.evaluate(bulk).await, 403);
    let left = browser.complaints().await;
    assert!(left.iter().all(|complaint| complaint.contains("403")), "{left:?}");
    let status = format!("SELECT status FROM outboxd.notifications WHERE id = {id}");
    assert_eq!(world.value::<String>(&status).await, "FAILED");
    // The same request with another token is let through.
    let form = [
        "Authorization: Bearer operate-operate-operate",
        "Content-Type: application/x-www-form-urlencoded",
        "Content-Length: 0",
    ];
    let named = ask(addr, "POST", "/act/nothing", &form).await;
    assert_eq!(named.status, 404, "{named:?}");
}

#[tokio::test]
async fn without_postgres_the_last_values_are_shown_with_their_age() {
    let database = postgres::database().await;
    let proxy = Proxy::start(database.port).await;
    let mut world = World::on(database.clone(), Carrier::Memory).await;
    let through = Database { port: proxy.port(), name: database.name.clone() };
    world.setup = world.setup.database_url(&through.url()).set("database.statement_timeout", "1s");
    let mut instance = world.setup.start().await;
    let addr = instance.http_addr().await;
    let first = get(addr, "/", &[HTML]).await;
    assert!(first.status == 200 && first.body.contains("Nothing waits"), "{first:?}");
    proxy.set(Fault::Reset);
    let answer = wait::until_ok("it tells", async || {
        let answer = get(addr, "/", &[HTML]).await;
        if answer.body.contains("Postgres does not answer") { Ok(answer) } else { Err(answer) }
    })
    .await;
    assert!(answer.status == 200 && answer.body.contains("These are the values of"), "{answer:?}");
    assert!(answer.body.contains("class=\"bad\">Postgres does not answer</span>"), "{answer:?}");
    assert!(answer.body.contains("id=\"alert\"><i class=\"dot critical\""), "{answer:?}");
    assert!(!answer.body.contains("Nothing waits") && !answer.body.contains("are well"), "{answer:?}");
    // Nobody had opened this one.
    let unseen = get(addr, "/topics", &[HTML]).await;
    assert!(unseen.status == 503 && unseen.body.contains("Postgres does not answer"), "{unseen:?}");
    proxy.heal();
}

#[tokio::test]
async fn a_page_hears_from_us_while_a_snapshot_takes_long() {
    let database = postgres::database().await;
    let proxy = Proxy::start(database.port).await;
    let mut world = World::on(database.clone(), Carrier::Memory).await;
    let through = Database { port: proxy.port(), name: database.name.clone() };
    world.setup = world.setup.database_url(&through.url());
    let mut instance = world.setup.start().await;
    let addr = instance.http_addr().await;
    proxy.set(Fault::BlackHole);
    let mut stream = TcpStream::connect(addr).await.unwrap();
    stream.write_all(format!("GET /live?page=/ HTTP/1.1\r\nHost: {addr}\r\n\r\n").as_bytes()).await.unwrap();
    let (mut heard, mut buffer) = (String::new(), [0; 4096]);
    while !heard.contains("event: ") {
        let read = tokio::time::timeout(SOON, stream.read(&mut buffer)).await.expect("something comes").unwrap();
        assert!(read > 0, "{heard}");
        heard.push_str(&String::from_utf8_lossy(&buffer[..read]));
    }
    assert!(heard.contains("event: alive"), "before the snapshot is there: {heard}");
    proxy.heal();
}
