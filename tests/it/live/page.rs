//! examples/live/feed.js in a real browser.

use crate::support::browser::Browser;
use crate::support::http::post;
use crate::support::proxy::{Fault, Proxy};

use super::Scene;

const FEED: &str = include_str!("../../../examples/live/feed.js");

#[tokio::test]
async fn the_feed_of_the_example_hears_events_in_a_browser_and_goes_on_after_a_cut() {
    let scene =
        Scene::with(|world| world.set("tokens.shop.token", "shop-token-0123456789").set("tokens.shop.scope", "write"))
            .await;
    let proxy = Proxy::before(scene.addr).await;
    let bearer = "Authorization: Bearer shop-token-0123456789";
    let answer = post(scene.addr, "/v1/live/tickets", &[bearer], r#"{"topics": ["order", "quiz"]}"#).await;
    let ticket = answer.json()["ticket"].as_str().expect("a ticket").to_owned();
    // A page of nobody's origin, as an app's page is to us.
    let mut browser = Browser::start("about:").await;
    browser.evaluate(&FEED.replace("export class Feed", "window.Feed = class Feed")).await;
    let listen = format!(
        "window.heard = []; window.states = [];
         window.feed = new Feed('ws://127.0.0.1:{}', {{ topics: ['order', 'quiz'], ticket: async () => '{ticket}' }});
         feed.addEventListener('event', ({{ detail }}) => heard.push(`${{detail.topic}} ${{detail.position}} ${{detail.payload.n}}`));
         for (const type of ['ready', 'gap']) feed.addEventListener(type, () => states.push(type)); 0",
        proxy.port()
    );
    browser.evaluate(&listen).await;
    browser.until("states.length === 1").await;
    scene.publish_many("order", 2).await;
    browser.until("heard.length === 2").await;
    proxy.set(Fault::Reset);
    scene.publish_many("order", 1).await;
    scene.publish("quiz", "k", "{\"n\": 7}").await;
    scene.appended().await;
    proxy.heal();
    browser.until("heard.length === 4").await;
    assert_eq!(
        browser.evaluate("heard.toSorted()").await,
        serde_json::json!(["order 1 0", "order 2 1", "order 3 0", "quiz 1 7"])
    );
    assert_eq!(browser.evaluate("states").await, serde_json::json!(["ready", "ready"]), "and no gap");
    browser.evaluate("feed.close()").await;
}
