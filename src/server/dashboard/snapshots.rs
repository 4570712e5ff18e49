//! Snapshots of what pages show. Whoever asks for a page that is being read waits for that snapshot, and whoever asks soon
//! after gets the same one. The last snapshot is kept, so that a page has something to show while Postgres is away, with
//! its age. What is kept under a name is shown to whoever asks for that name.
//!
//! **Guarantee.** However many people watch a page, it is read once an interval. **Limit.** A bounded number of pages is
//! kept; of those who see alike and have most, the one that nobody asked for the longest goes first.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use serde_json::Value;

use crate::server::problem::{Kind, Problem};

/// Pages that are kept, each with its filters.
const PAGES_MAX: usize = 64;

/// What tells a snapshot apart from others.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Name {
    /// Who sees it: those who see alike.
    pub(super) sight: String,
    /// The page, with its filters.
    pub(super) address: String,
}

/// What was read for a page.
#[derive(Debug, Clone)]
pub(super) struct Snapshot {
    pub(super) found: Arc<Value>,
    pub(super) at: DateTime<Utc>,
    read_at: Instant,
    /// How often somebody had acted when its reading began.
    acts: u64,
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

impl Last {
    /// What is shown although the page cannot be read now. Who may not see it sees no older one either.
    fn beside(&self, trouble: &Problem) -> Option<Snapshot> {
        self.snapshot.clone().filter(|_| trouble.kind() != Kind::Forbidden)
    }
}

/// The last snapshots, by page.
#[derive(Debug, Default)]
pub(super) struct Snapshots {
    pages: Mutex<HashMap<Name, (Arc<Entry>, Instant)>>,
    /// How often somebody acted here.
    acts: AtomicU64,
}

impl Snapshots {
    /// What is known of this page, not older than `age_max` unless Postgres is away.
    pub(super) async fn get(
        &self,
        page: Name,
        age_max: Duration,
        read: impl Future<Output = Result<Value, Problem>>,
    ) -> Shown {
        let (page, asked) = (self.page(page), Instant::now());
        let mut last = page.last.lock().await;
        let acts = self.acts.load(Ordering::Acquire);
        if let Some(kept) = &last.snapshot
            && kept.acts == acts
            && kept.read_at.elapsed() < age_max
        {
            return Shown { snapshot: Some(kept.clone()), trouble: None };
        }
        // It failed while we waited for it.
        if let Some((_, trouble)) = last.failed.as_ref().filter(|(at, _)| *at > asked) {
            return Shown { snapshot: last.beside(trouble), trouble: Some(trouble.clone()) };
        }
        match read.await {
            Ok(found) => {
                let snapshot = Snapshot { found: Arc::new(found), at: Utc::now(), read_at: Instant::now(), acts };
                *last = Last { snapshot: Some(snapshot.clone()), failed: None };
                Shown { snapshot: Some(snapshot), trouble: None }
            }
            Err(error) => {
                last.failed = Some((Instant::now(), error.clone()));
                Shown { snapshot: last.beside(&error), trouble: Some(error) }
            }
        }
    }

    /// Somebody acted here: the next snapshot is a new one.
    pub(super) fn outdate(&self) {
        self.acts.fetch_add(1, Ordering::Release);
    }

    fn page(&self, name: Name) -> Arc<Entry> {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        if !pages.contains_key(&name) && pages.len() >= PAGES_MAX {
            let mut of_sight: HashMap<&str, usize> = HashMap::new();
            pages.keys().for_each(|name| *of_sight.entry(&name.sight).or_default() += 1);
            let order = |(name, (_, asked)): &(&Name, &(Arc<Entry>, Instant))| {
                (std::cmp::Reverse(of_sight.get(&*name.sight).copied()), *asked)
            };
            let gives = pages.iter().min_by_key(order).map(|(name, _)| name.clone());
            gives.and_then(|gives| pages.remove(&gives));
        }
        let (page, asked) = pages.entry(name).or_insert_with(|| (Arc::default(), Instant::now()));
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

    fn page(sight: &str, address: &str) -> Name {
        Name { sight: sight.to_owned(), address: address.to_owned() }
    }

    fn first() -> Name {
        page("read", "/")
    }

    #[tokio::test]
    async fn however_many_ask_a_page_is_read_once() {
        let (snapshots, count) = (Snapshots::default(), AtomicUsize::new(0));
        let ask = || {
            snapshots.get(first(), LONG, async {
                tokio::task::yield_now().await;
                Ok(json!(count.fetch_add(1, Ordering::Relaxed)))
            })
        };
        let all = futures_util::future::join_all((0..50).map(|_| ask())).await;
        assert!(all.iter().all(|shown| *shown.snapshot.as_ref().unwrap().found == json!(0)));
        snapshots.outdate();
        assert_eq!(*ask().await.snapshot.unwrap().found, json!(1));
    }

    #[tokio::test]
    async fn whoever_waited_for_a_read_that_failed_does_not_read_again() {
        let (snapshots, count) = (Snapshots::default(), AtomicUsize::new(0));
        let ask = || {
            snapshots.get(first(), LONG, async {
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
        let nothing = snapshots.get(first(), LONG, away()).await;
        assert!(nothing.snapshot.is_none() && nothing.trouble.is_some());
        let found = snapshots.get(first(), LONG, async { Ok(json!(7)) }).await.snapshot.unwrap();
        let stale = snapshots.get(first(), Duration::ZERO, away()).await;
        assert_eq!(stale.snapshot.unwrap().at, found.at);
        assert!(stale.trouble.is_some());
        let forbidden = async { Err(Problem::new(Kind::Forbidden, "not with this token")) };
        let refused = snapshots.get(first(), Duration::ZERO, forbidden).await;
        assert!(refused.snapshot.is_none() && refused.trouble.is_some(), "it is no reason to show an older one");
    }

    #[tokio::test]
    async fn a_bounded_number_of_pages_is_kept() {
        let snapshots = Snapshots::default();
        snapshots.get(page("operate", "/"), LONG, async { Ok(json!(7)) }).await;
        for n in 0..PAGES_MAX * 3 {
            snapshots.get(page("read", &n.to_string()), LONG, async { Ok(json!(n)) }).await;
        }
        let kept = snapshots.pages.lock().unwrap();
        assert_eq!(kept.len(), PAGES_MAX);
        assert!(
            !kept.contains_key(&page("read", "0"))
                && kept.contains_key(&page("read", &(PAGES_MAX * 3 - 1).to_string()))
        );
        assert!(kept.contains_key(&page("operate", "/")), "readers take nothing from operators");
    }

    #[tokio::test]
    async fn whoever_acts_waits_for_no_page_and_a_reading_that_began_before_is_old() {
        let (snapshots, (go, gone)) = (Snapshots::default(), tokio::sync::oneshot::channel::<()>());
        let before = snapshots.get(first(), LONG, async {
            gone.await.unwrap();
            Ok(json!("before"))
        });
        let act = async {
            snapshots.outdate();
            go.send(()).unwrap();
        };
        tokio::join!(before, act);
        assert_eq!(*snapshots.get(first(), LONG, async { Ok(json!("after")) }).await.snapshot.unwrap().found, "after");
    }
}
