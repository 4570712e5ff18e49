//! Snapshots of what pages show. Whoever asks for a page that is being read waits for that snapshot, and whoever asks soon
//! after gets the same one. The last snapshot is kept, so that a page has something to show while Postgres is away, with
//! its age.
//!
//! **Guarantee.** However many people watch a page, it is read once an interval. **Limit.** A bounded number of pages is
//! kept; the one that nobody asked for the longest goes first.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use serde_json::Value;

use crate::server::problem::Problem;

/// Pages that are kept, each with its filters.
const PAGES_MAX: usize = 64;

/// What was read for a page.
#[derive(Debug, Clone)]
pub(super) struct Snapshot {
    pub(super) found: Arc<Value>,
    pub(super) at: DateTime<Utc>,
    /// `None`: somebody acted since.
    read_at: Option<Instant>,
}

/// What there is to show.
#[derive(Debug)]
pub(super) struct Shown {
    /// `None`: the page was never read.
    pub(super) snapshot: Option<Snapshot>,
    /// Why it is not newer.
    pub(super) trouble: Option<Problem>,
}

#[derive(Debug, Default)]
struct Entry {
    last: tokio::sync::Mutex<Last>,
}

#[derive(Debug, Default)]
struct Last {
    snapshot: Option<Snapshot>,
    /// When reading failed, and why.
    failed: Option<(Instant, Problem)>,
}

/// The last snapshots, by page.
#[derive(Debug, Default)]
pub(super) struct Snapshots {
    pages: Mutex<HashMap<String, (Arc<Entry>, Instant)>>,
}

impl Snapshots {
    /// What is known of this page, not older than `age_max` unless Postgres is away.
    pub(super) async fn get(
        &self,
        page: &str,
        age_max: Duration,
        read: impl Future<Output = Result<Value, Problem>>,
    ) -> Shown {
        let (page, asked) = (self.page(page), Instant::now());
        let mut last = page.last.lock().await;
        if let Some(kept) = &last.snapshot
            && kept.read_at.is_some_and(|at| at.elapsed() < age_max)
        {
            return Shown { snapshot: Some(kept.clone()), trouble: None };
        }
        // It failed while we waited for it.
        if let Some((_, trouble)) = last.failed.as_ref().filter(|(at, _)| *at > asked) {
            return Shown { snapshot: last.snapshot.clone(), trouble: Some(trouble.clone()) };
        }
        match read.await {
            Ok(found) => {
                let snapshot = Snapshot { found: Arc::new(found), at: Utc::now(), read_at: Some(Instant::now()) };
                *last = Last { snapshot: Some(snapshot.clone()), failed: None };
                Shown { snapshot: Some(snapshot), trouble: None }
            }
            Err(error) => {
                last.failed = Some((Instant::now(), error.clone()));
                Shown { snapshot: last.snapshot.clone(), trouble: Some(error) }
            }
        }
    }

    /// Somebody acted here: the next snapshot is a new one.
    pub(super) async fn outdate(&self) {
        let pages: Vec<Arc<Entry>> = {
            let pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
            pages.values().map(|(page, _)| Arc::clone(page)).collect()
        };
        for page in pages {
            if let Some(snapshot) = &mut page.last.lock().await.snapshot {
                snapshot.read_at = None;
            }
        }
    }

    fn page(&self, name: &str) -> Arc<Entry> {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        if !pages.contains_key(name) && pages.len() >= PAGES_MAX {
            let oldest = pages.iter().min_by_key(|(_, (_, asked))| *asked).map(|(name, _)| name.clone());
            oldest.and_then(|oldest| pages.remove(&oldest));
        }
        let (page, asked) = pages.entry(name.to_owned()).or_insert_with(|| (Arc::default(), Instant::now()));
        *asked = Instant::now();
        Arc::clone(page)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::json;

    use super::*;
    use crate::server::problem::Kind;

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn however_many_ask_a_page_is_read_once() {
        let (snapshots, count) = (Snapshots::default(), AtomicUsize::new(0));
        let ask = || {
            snapshots.get("/", LONG, async {
                tokio::task::yield_now().await;
                Ok(json!(count.fetch_add(1, Ordering::Relaxed)))
            })
        };
        let all = futures_util::future::join_all((0..50).map(|_| ask())).await;
        assert!(all.iter().all(|shown| *shown.snapshot.as_ref().unwrap().found == json!(0)));
        snapshots.outdate().await;
        assert_eq!(*ask().await.snapshot.unwrap().found, json!(1));
    }

    #[tokio::test]
    async fn whoever_waited_for_a_read_that_failed_does_not_read_again() {
        let (snapshots, count) = (Snapshots::default(), AtomicUsize::new(0));
        let ask = || {
            snapshots.get("/", LONG, async {
                tokio::task::yield_now().await;
                count.fetch_add(1, Ordering::Relaxed);
                Err(Problem::new(Kind::Unavailable, "gone"))
            })
        };
        let all = futures_util::future::join_all((0..50).map(|_| ask())).await;
        assert!(all.iter().all(|shown| shown.trouble.is_some()));
        assert_eq!(count.load(Ordering::Relaxed), 1);
        assert!(ask().await.trouble.is_some());
        assert_eq!(count.load(Ordering::Relaxed), 2, "whoever asks later reads");
    }

    #[tokio::test]
    async fn the_last_snapshot_is_kept_while_postgres_is_away() {
        let snapshots = Snapshots::default();
        let away = async || Err(Problem::new(Kind::Unavailable, "gone"));
        let nothing = snapshots.get("/", LONG, away()).await;
        assert!(nothing.snapshot.is_none() && nothing.trouble.is_some());
        let found = snapshots.get("/", LONG, async { Ok(json!(7)) }).await.snapshot.unwrap();
        let stale = snapshots.get("/", Duration::ZERO, away()).await;
        assert_eq!(stale.snapshot.unwrap().at, found.at);
        assert!(stale.trouble.is_some());
    }

    #[tokio::test]
    async fn a_bounded_number_of_pages_is_kept() {
        let snapshots = Snapshots::default();
        for n in 0..PAGES_MAX * 3 {
            snapshots.get(&n.to_string(), LONG, async { Ok(json!(n)) }).await;
        }
        assert_eq!(snapshots.pages.lock().unwrap().len(), PAGES_MAX);
        let kept = snapshots.pages.lock().unwrap();
        assert!(!kept.contains_key("0") && kept.contains_key(&(PAGES_MAX * 3 - 1).to_string()));
    }
}
