//! Every page on a wide and on a narrow screen, light and dark: nothing is cut off, all text can be read, and nothing
//! is refused. With OUTBOXD_PICTURES=DIR the pictures are written there (scripts/screenshots).

use std::path::PathBuf;

use super::Desk;
use crate::support::provider::Reply;
use crate::support::sql::Sql;
use crate::support::world::{Carrier, World};

/// Page, name of its picture, and what is done before it is taken.
const SHOTS: [(&str, &str, &str); 11] = [
    ("/", "now", ""),
    ("/notifications?status=FAILED", "notifications", ""),
    ("/dead", "dead-letters", ""),
    ("/channels", "channels", "document.querySelector('details.confirm').open = true"),
    ("/topics", "topics", ""),
    ("/schedules", "schedules", ""),
    ("/events", "events", ""),
    ("/instances", "instances", ""),
    ("/bulk", "bulk-actions", ""),
    ("/bulk/new?action=retry&topic=orders&channel=push&cause=HTTP+410", "bulk-preview", ""),
    ("/audit", "audit", ""),
];

/// What is wider than the window or than what it stands in.
const CUT_OFF: &str = "document.documentElement.scrollWidth > innerWidth ? ['the page'] : \
    [...document.querySelectorAll('main *')].filter(e => !e.closest('.sr, svg, .clip, .answer, thead, details:not([open]) > :not(summary)') && \
     e.getBoundingClientRect().right > innerWidth + 1 || e.matches('.figures *') && e.scrollWidth > e.clientWidth + 1).map(e => e.outerHTML.slice(0, 120))";

/// Cells of a wide screen that are squeezed: a short name in more than one line, or more than three lines.
const SQUEEZED: &str = "[...document.querySelectorAll('main td:not(.last)')].filter(e => innerWidth > 760).filter(e => { \
     const range = document.createRange(); range.selectNodeContents(e); const tops = [...range.getClientRects()].map(r => r.top); \
     return Math.max(...tops) - Math.min(...tops) > (/^\\S{1,16}$/.test(e.innerText.trim()) ? 12 : 50) }) \
    .map(e => e.outerHTML.slice(0, 120))";

async fn scene() -> Desk {
    let mut world = World::new(Carrier::Memory).await;
    let toml = r#"
        channels.push = { rate_limit = "500/s", max_in_flight = 64 }
        channels.sms.rate_limit = "20/s"
        routes.default.channels = ["push", "sms", "alimtalk"]
        routes.quiz.channels = ["push"]
        routes.security.channels = ["push", "sms"]
        routes."receipt.issued".channels = ["alimtalk"]
        routes.hooks.channels = ["webhook"]
    "#;
    let url = world.provider.url("/hook");
    for channel in ["push", "sms", "alimtalk"] {
        world.setup = world.setup.set(&format!("channels.{channel}.url"), url.as_str());
    }
    world.setup = world.setup.toml(toml);
    world.provider.answer(Reply::ok());
    let desk = Desk::new(world).await;
    desk.world.until("SELECT count(*) > 5 FROM outboxd.route").await;
    desk.world.run(include_str!("scene.sql")).await;
    desk
}

#[tokio::test]
async fn nothing_is_cut_off_on_a_wide_or_a_narrow_screen_light_or_dark() {
    let mut desk = scene().await;
    let dead: i64 = desk.world.value("SELECT max(notification_id) FROM outboxd.attempts").await;
    let one = format!("/notifications/{dead}?payload=shown");
    let mut shots = SHOTS.to_vec();
    shots.push((&one, "notification", ""));
    look(&mut desk, &shots).await;
    desk.end().await;
}

/// Opens each page on each screen: nothing is cut off or squeezed, and all text can be read.
pub(super) async fn look(desk: &mut Desk, shots: &[(&str, &str, &str)]) {
    let dir = std::env::var_os("OUTBOXD_PICTURES").map(PathBuf::from);
    for &(path, name, before) in shots {
        desk.browser.open(path).await;
        let wanted = "!document.body.dataset.live || document.querySelector('#live').dataset.state === 'live'";
        desk.browser.until(wanted).await;
        for (width, scheme) in [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")] {
            desk.browser.prefer(scheme).await;
            desk.browser.size(width, 900).await;
            desk.browser.evaluate(before).await;
            let cut = desk.browser.evaluate(CUT_OFF).await;
            assert_eq!(cut, serde_json::json!([]), "{path} at {width}");
            let squeezed = desk.browser.evaluate(SQUEEZED).await;
            assert_eq!(squeezed, serde_json::json!([]), "{path} at {width}");
            let pale = desk.browser.evaluate(include_str!("contrast.js")).await;
            assert_eq!(pale, serde_json::json!([]), "{path} at {width}, {scheme}");
            if let Some(dir) = &dir {
                let file = dir.join(format!("{name}-{width}-{scheme}.png"));
                std::fs::write(file, desk.browser.picture(width).await).expect("the picture is written");
            }
        }
    }
}
