//! The dashboard, in a real browser and without one.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::browser::Browser;
use crate::support::instance::Instance;
use crate::support::provider::Reply;
use crate::support::sql::Sql;
use crate::support::world::{Carrier, World};

mod acting;
mod many;
mod pages;
mod pictures;

const SOON: Duration = Duration::from_secs(20);

/// An instance, its world, and a browser that looks at it.
struct Desk {
    world: World,
    instance: Instance,
    browser: Browser,
}

impl Desk {
    async fn new(world: World) -> Desk {
        let mut instance = world.setup.start().await;
        let addr = instance.http_addr().await;
        let browser = Browser::start(&format!("http://{addr}")).await;
        Desk { world, instance, browser }
    }

    /// A world whose notifications are tried once.
    async fn with_one_try() -> Desk {
        let mut world = World::new(Carrier::Memory).await;
        world.setup =
            world.setup.set("routes.default.max_attempts", 1).set("channels.webhook.circuit.failures", 10_000);
        Desk::new(world).await
    }

    /// So many notifications that the provider refuses.
    async fn dead_letters(&self, count: i32) {
        self.world.provider.answer(Reply::status(500).body("no room today"));
        self.world.notify(count).await;
        self.world.until(&format!("SELECT count(*) = {count} FROM outboxd.dead_letters")).await;
        self.world.provider.answer(Reply::ok());
    }

    /// Nothing in the console, and nothing that the pages' policy refused.
    async fn end(mut self) {
        assert_eq!(self.browser.complaints().await, [""; 0]);
        assert_eq!(self.instance.drain().await, 0);
    }
}

#[tokio::test]
async fn a_dead_letter_is_found_opened_retried_and_seen_to_be_sent() {
    let mut desk = Desk::with_one_try().await;
    desk.dead_letters(3).await;
    let id: i64 = desk.world.value("SELECT id FROM outboxd.dead_letters WHERE recipient = 'r2'").await;
    let browser = &mut desk.browser;
    browser.open("/notifications?topic=orders&status=FAILED").await;
    assert_eq!(browser.evaluate("document.querySelectorAll('[data-row]').length").await, 3);
    browser.evaluate("document.querySelector('[name=recipient]').value = 'r2'").await;
    browser.follow("document.querySelector('.filters').requestSubmit()").await;
    assert_eq!(browser.evaluate("document.querySelectorAll('[data-row]').length").await, 1);
    browser.follow("document.querySelector('[data-row] a').click()").await;
    assert_eq!(browser.evaluate("location.pathname").await, format!("/notifications/{id}"));
    let text = browser.text().await;
    for wanted in ["FAILED", "Attempt 1: failed", "HTTP 500", "no room today", "Given up"] {
        assert!(text.contains(wanted), "no {wanted:?} in {text}");
    }
    // The answer takes a moment, so that what is seen of it comes live.
    desk.world.provider.answer(Reply::ok().after(Duration::from_millis(700)));
    browser.follow("document.querySelector('form[action=\"/act/retry\"] button').click()").await;
    browser.evaluate("window.isTheSamePage = true").await;
    browser.until("!!document.querySelector('.head .badge.t-ok')").await;
    assert_eq!(browser.evaluate("window.isTheSamePage").await, true, "it became SENT without a reload");
    browser.until("document.querySelector('#said').textContent.includes('is SENT')").await;
    let actor: String = desk.world.value("SELECT token FROM outboxd.audit WHERE action = 'retry'").await;
    assert!(actor.contains("local"), "{actor}");
    desk.end().await;
}

#[tokio::test]
async fn a_bulk_retry_is_counted_confirmed_and_followed() {
    let mut desk = Desk::with_one_try().await;
    desk.dead_letters(1_100).await;
    desk.browser.open("/dead").await;
    assert!(desk.browser.text().await.contains("1,100"));
    desk.browser.follow("[...document.querySelectorAll('a')].find(a => a.textContent === 'Retry…').click()").await;
    desk.browser.until_says("1,100 dead letters match").await;
    // What fails later was not counted.
    let later = "INSERT INTO outboxd.notification_log (topic, recipient, payload, status, finished_at, failed_at, error, http_status, channel)
                 VALUES ('orders', 'later', '{}', 'FAILED', now(), now(), 'answered 500', 500, 'webhook')";
    desk.world.run(later).await;
    let browser = &mut desk.browser;
    let button = "document.querySelector('#bulk button').disabled";
    assert_eq!(browser.evaluate(button).await, true);
    browser.evaluate("document.querySelector('#typed').focus()").await;
    browser.write("1101").await;
    assert_eq!(browser.evaluate(button).await, true, "it is the wrong number");
    browser.evaluate("document.querySelector('#typed').value = ''").await;
    browser.write("1,100").await;
    assert_eq!(browser.evaluate(button).await, false);
    browser.follow("document.querySelector('#bulk button').click()").await;
    browser.until("!!document.querySelector('[role=progressbar][aria-valuenow=\"100\"]')").await;
    browser.until_says("finished").await;
    let left = "SELECT array_agg(recipient) FROM outboxd.dead_letters";
    assert_eq!(desk.world.value::<Vec<String>>(left).await, ["later"]);
    desk.world.provider.wait_for(2_200, SOON).await;
    desk.end().await;
}

#[tokio::test]
async fn a_page_that_hears_nothing_more_says_so_and_comes_back() {
    let mut desk = Desk::with_one_try().await;
    desk.browser.open("/").await;
    let is = |state: &str| format!("document.querySelector('#live').dataset.state === '{state}'");
    desk.browser.until(&is("live")).await;
    // Its connections stay open, and nothing comes.
    desk.instance.signal(Signal::SIGSTOP);
    desk.browser.until(&is("lost")).await;
    desk.instance.signal(Signal::SIGCONT);
    desk.browser.until(&is("live")).await;
    assert_eq!(desk.instance.drain().await, 0);
}

#[tokio::test]
async fn a_channel_is_paused_and_resumed_and_an_open_circuit_probed() {
    let mut world = World::new(Carrier::Memory).await;
    world.setup =
        world.setup.set("channels.webhook.circuit.failures", 2).set("channels.webhook.circuit.open_for", "1h");
    let mut desk = Desk::new(world).await;
    desk.world.provider.answer(Reply::status(500));
    desk.world.notify(3).await;
    desk.world.until_count(1, "channel_health WHERE circuit = 'open'").await;
    desk.world.provider.answer(Reply::ok());
    let browser = &mut desk.browser;
    browser.open("/").await;
    browser.until_says("webhook is open").await;
    browser.follow("document.querySelector('form[action=\"/act/probe_channel\"] button').click()").await;
    browser.until("!document.querySelector('form[action=\"/act/probe_channel\"]')").await;
    desk.world.until_count(3, "notifications WHERE status = 'SENT'").await;
    browser.open("/channels").await;
    // It says first what it will do.
    browser.click("details.confirm summary").await;
    assert!(browser.text().await.contains("No instance calls it until somebody resumes it"));
    browser.follow("document.querySelector('form[action=\"/act/pause_channel\"] button').click()").await;
    browser.until_says("Channel webhook is paused on all instances.").await;
    desk.world.notify(1).await;
    browser.open("/").await;
    browser.until_says("Resume channel webhook").await;
    browser.follow("document.querySelector('form[action=\"/act/resume_channel\"] button').click()").await;
    desk.world.until_count(4, "notifications WHERE status = 'SENT'").await;
    desk.end().await;
}

#[tokio::test]
async fn keys_alone_are_enough() {
    let mut desk = Desk::with_one_try().await;
    desk.dead_letters(3).await;
    let browser = &mut desk.browser;
    browser.open("/").await;
    browser.press("?").await;
    browser.until("document.querySelector('#keys').open").await;
    browser.press("Escape").await;
    browser.until("!document.querySelector('#keys').open").await;
    browser.evaluate("window.isOld = true").await;
    browser.press("g").await;
    browser.press("l").await;
    let wanted = "!window.isOld && location.pathname === '/notifications' && document.readyState === 'complete'";
    browser.until(wanted).await;
    browser.press("j").await;
    browser.press("j").await;
    browser.press("k").await;
    let id = browser.evaluate("document.querySelector('tr.on a').textContent").await;
    assert_eq!(browser.evaluate("document.activeElement.textContent").await, id);
    browser.evaluate("window.isOld = true").await;
    browser.press("Enter").await;
    let there = format!(
        "!window.isOld && location.pathname === '/notifications/' + {id} && document.readyState === 'complete'"
    );
    browser.until(&there).await;
    browser.press("/").await;
    browser.until("document.activeElement.id === 'q'").await;
    browser.write("r3").await;
    browser.evaluate("window.isOld = true").await;
    browser.press("Enter").await;
    let wanted = "!window.isOld && location.search === '?q=r3' && document.querySelectorAll('[data-row]').length === 1";
    browser.until(wanted).await;
    browser.open("/").await;
    browser.until("document.querySelector('#live').dataset.state === 'live'").await;
    browser.press("p").await;
    browser.until("document.querySelector('#live').dataset.state === 'paused'").await;
    assert_eq!(browser.evaluate("live.source === null").await, true, "nothing is asked for while it is paused");
    browser.press("p").await;
    browser.until("document.querySelector('#live').dataset.state === 'live' && live.source !== null").await;
    desk.end().await;
}

#[tokio::test]
async fn the_theme_is_the_systems_until_it_is_chosen_and_then_stays() {
    let mut desk = Desk::new(World::new(Carrier::Memory).await).await;
    let browser = &mut desk.browser;
    let background = "getComputedStyle(document.body).backgroundColor";
    browser.prefer("light").await;
    browser.open("/").await;
    let light = browser.evaluate(background).await;
    browser.prefer("dark").await;
    let dark = browser.evaluate(background).await;
    assert_ne!(light, dark);
    browser.click("#theme button").await;
    assert_eq!(browser.evaluate(background).await, light);
    browser.open("/channels").await;
    assert_eq!(browser.evaluate(background).await, light, "the choice stays");
    desk.end().await;
}

#[tokio::test]
async fn what_apps_and_providers_write_is_shown_as_text() {
    let mut desk = Desk::with_one_try().await;
    let evil = "<img src=x onerror=\"document.title = 'owned'\"><script>document.title = 'owned'</script>";
    desk.world.provider.answer(Reply::status(500).body(evil));
    let notify = format!(
        "SELECT outboxd.notify('orders', '{0}', jsonb_build_object('text', '{0}'), headers => jsonb_build_object('x-evil', '{0}'))",
        evil.replace('\'', "''")
    );
    desk.world.run(&notify).await;
    desk.world.until_count(1, "dead_letters").await;
    let id: i64 = desk.world.value("SELECT id FROM outboxd.dead_letters").await;
    let browser = &mut desk.browser;
    for path in ["/", "/dead", "/notifications", "/channels", &format!("/notifications/{id}?payload=shown")] {
        browser.open(path).await;
        assert_eq!(browser.evaluate("document.querySelectorAll('main img, main script').length").await, 0, "{path}");
        assert_ne!(browser.evaluate("document.title").await, "owned", "{path}");
    }
    let payload = browser.evaluate("JSON.parse(document.querySelector('#payload').textContent).text").await;
    assert_eq!(payload, evil);
    desk.end().await;
}

#[tokio::test]
async fn without_scripts_pages_are_whole_and_forms_work() {
    let mut desk = Desk::with_one_try().await;
    desk.dead_letters(1).await;
    let browser = &mut desk.browser;
    browser.open("/dead").await;
    browser.set_scripts(false).await;
    browser.open("/notifications").await;
    browser.follow("document.querySelector('[data-row] a').click()").await;
    assert!(!browser.has("#live:not(.hide)").await);
    assert_eq!(
        browser.evaluate("document.querySelector('#help').checkVisibility()").await,
        false,
        "keys do nothing here"
    );
    browser.follow("document.querySelector('form[action=\"/act/discard\"] button').click()").await;
    assert!(browser.text().await.contains("discarded"));
    browser.follow("document.querySelector('#theme button').click()").await;
    assert_eq!(browser.evaluate("document.documentElement.dataset.theme").await, "dark");
    desk.world.until("SELECT status = 'CANCELED' FROM outboxd.notifications").await;
    desk.end().await;
}
