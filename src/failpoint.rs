//! Points at which tests make this process die, panic or hang. Debug builds only: in a release build [`hit`] is empty.
//!
//! Armed by `FAILPOINTS`, e.g. `after_claim=abort` or `after_push=hang@3` (at the third hit).
//!
//! May change: where the points are. Must not: anything that a release build would run.

/// A point in the code that tests name. Does nothing unless armed.
#[cfg(not(debug_assertions))]
#[inline]
pub async fn hit(_name: &'static str) {}

/// A point in the code that tests name. Does nothing unless armed.
#[cfg(debug_assertions)]
pub async fn hit(name: &'static str) {
    if let Some(action) = armed::action(name) {
        armed::act(name, action).await;
    }
}

#[cfg(debug_assertions)]
mod armed {
    use std::collections::HashMap;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[derive(Debug, Clone, Copy)]
    pub(super) enum Action {
        Abort,
        Panic,
        Hang,
    }

    #[derive(Debug)]
    struct Point {
        action: Action,
        at_hit: u32,
        hits: AtomicU32,
    }

    static POINTS: OnceLock<HashMap<String, Point>> = OnceLock::new();

    pub(super) fn action(name: &str) -> Option<Action> {
        let point = POINTS.get_or_init(|| parse(&std::env::var("FAILPOINTS").unwrap_or_default())).get(name)?;
        let hit = point.hits.fetch_add(1, Ordering::Relaxed) + 1;
        (hit == point.at_hit).then_some(point.action)
    }

    pub(super) async fn act(name: &str, action: Action) {
        tracing::warn!(failpoint = name, ?action, "failpoint hit");
        match action {
            Action::Abort => std::process::abort(),
            Action::Panic => panic!("failpoint {name}"),
            Action::Hang => std::future::pending().await,
        }
    }

    fn parse(text: &str) -> HashMap<String, Point> {
        let mut points = HashMap::new();
        for (name, how) in text.split(',').filter_map(|part| part.split_once('=')) {
            let (action, at_hit) = how.split_once('@').unwrap_or((how, "1"));
            let action = match action {
                "abort" => Action::Abort,
                "panic" => Action::Panic,
                "hang" => Action::Hang,
                other => panic!("failpoint {name}: no action {other}"),
            };
            let at_hit = at_hit.parse().unwrap_or_else(|_| panic!("failpoint {name}: no number {at_hit}"));
            points.insert(name.to_owned(), Point { action, at_hit, hits: AtomicU32::new(0) });
        }
        points
    }
}
