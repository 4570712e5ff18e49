//! `/live?page=…`: server-sent events with the parts of a page that changed.
//!
//! All listeners wake at the same times and share a snapshot (see [`super::snapshots`]): a page that many watch is read
//! once an interval, and one that nobody watches is not read. A listener whose browser tab is hidden has closed its
//! stream.
//!
//! **Guarantee.** Only what changed is sent, and a page that hears nothing knows that it is not live. A stream ends with
//! the session that opened it. **Limit.** A bounded number of pages is live at a time; when it is reached, a newcomer
//! gets the place of whoever has most (`server::share`).

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Extension, Query, State};
use axum::http::header::CACHE_CONTROL;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt as _, stream};
use serde::Deserialize;

use super::page::Page;
use super::view::Viewer;
use super::{Dashboard, render};
use crate::server::access::{Caller, Standing};
use crate::server::connections::Visitor;
use crate::server::problem::{Kind, Problem};
use crate::server::share::{Right, Share};

/// Between two snapshots of a page.
pub(super) const EVERY: Duration = Duration::from_secs(2);
/// Listeners at a time; connections are bounded too, and probes need some.
pub(super) const LISTENERS_MAX: usize = 64;

#[derive(Debug, Deserialize)]
pub(super) struct Asked {
    page: String,
}

struct Listener {
    dashboard: Arc<Dashboard>,
    page: Page,
    viewer: Viewer,
    sent: Vec<(String, String)>,
    share: Share,
}

pub(super) async fn listen(
    State(dashboard): State<Arc<Dashboard>>,
    caller: Caller,
    Extension(standing): Extension<Standing>,
    Extension(visitor): Extension<Visitor>,
    Query(asked): Query<Asked>,
) -> Result<Response, Problem> {
    let (path, query) = asked.page.split_once('?').unwrap_or((&asked.page, ""));
    let page = Page::parse(path, query).filter(Page::is_live);
    let page = page.ok_or_else(|| Problem::new(Kind::NotFound, "there is no such live page"))?;
    page.check(&caller)?;
    let token = caller.name().to_owned();
    let right = Right { name: token.clone(), max: LISTENERS_MAX, token, peer: visitor.peer() };
    let share = dashboard.listeners.take(right);
    let share = share.map_err(|_| Problem::new(Kind::Unavailable, "too many pages are open; reload to see changes"))?;
    let viewer = Viewer { caller, here: asked.page };
    let listener = Listener { dashboard, page, viewer, sent: Vec::new(), share };
    let events = stream::unfold(listener, |mut listener| async move {
        let event = listener.next().await?;
        Some((Ok::<Event, Infallible>(event), listener))
    });
    let events = events.take_until(Box::pin(async move { standing.ended().await }));
    // Says that we are here, also while a snapshot takes long: a page that hears nothing is not live.
    let alive = KeepAlive::new().interval(EVERY).event(Event::default().event("alive").data("1"));
    Ok(([(CACHE_CONTROL, "no-store")], Sse::new(events).keep_alive(alive)).into_response())
}

impl Listener {
    /// The next event: the parts that changed, or none, so that either side notices when the other has gone.
    async fn next(&mut self) -> Option<Event> {
        let dashboard = Arc::clone(&self.dashboard);
        if !self.sent.is_empty() {
            // All listeners wake at the same times.
            let since = dashboard.began.elapsed().as_millis();
            let every = EVERY.as_millis();
            let wait = Duration::from_millis(u64::try_from(every - since % every).unwrap_or(1));
            let waited = self.share.taken_away.run_until_cancelled(tokio::time::sleep(wait));
            dashboard.stop.run_until_cancelled(waited).await??;
        }
        let mut drawn = dashboard.stop.run_until_cancelled(dashboard.draw(&self.page, &self.viewer, EVERY / 2)).await?;
        drawn.parts.push(("alert".to_owned(), render::alert(drawn.alert).to_string()));
        let changed: Vec<&(String, String)> = drawn.parts.iter().filter(|part| !self.sent.contains(part)).collect();
        let event = Event::default().event("parts").data(serde_json::json!(changed).to_string());
        self.sent = drawn.parts;
        Some(event)
    }
}
