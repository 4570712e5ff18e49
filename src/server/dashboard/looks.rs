//! What pages show, looked up once for all who look: whoever asks while a look is under way waits for it, and whoever asks
//! soon after gets the same. The last look that succeeded is kept, so that a page has something to show while Postgres is
//! away, with its age.
//!
//! **Guarantee.** However many people watch a page, it costs one look an interval. **Limit.** So many pages are kept; the
//! one that was not asked for the longest goes first.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use serde_json::Value;

use crate::server::problem::Problem;

/// Pages that are kept, each with its filters.
const PAGES_MAX: usize = 64;

/// What a look found.
#[derive(Debug, Clone)]
pub(super) struct Look {
    pub(super) found: Arc<Value>,
    pub(super) at: DateTime<Utc>,
    looked: Instant,
}

/// What there is to show.
#[derive(Debug)]
pub(super) struct Shown {
    /// `None`: nothing was ever found.
    pub(super) look: Option<Look>,
    /// Why it is not newer.
    pub(super) trouble: Option<Problem>,
}

#[derive(Debug, Default)]
struct Page {
    last: tokio::sync::Mutex<Last>,
}

#[derive(Debug, Default)]
struct Last {
    look: Option<Look>,
    /// When a look failed, and why.
    failed: Option<(Instant, Problem)>,
}

/// The pages that were looked at lately.
#[derive(Debug, Default)]
pub(super) struct Looks {
    pages: Mutex<HashMap<String, (Arc<Page>, Instant)>>,
}

impl Looks {
    /// What is known of this page, not older than `age_max` unless Postgres is away.
    pub(super) async fn at(
        &self,
        page: &str,
        age_max: Duration,
        look: impl Future<Output = Result<Value, Problem>>,
    ) -> Shown {
        let (page, asked) = (self.page(page), Instant::now());
        let mut last = page.last.lock().await;
        if let Some(kept) = &last.look
            && kept.looked.elapsed() < age_max
        {
            return Shown { look: Some(kept.clone()), trouble: None };
        }
        // It failed while we waited for it.
        if let Some((_, trouble)) = last.failed.as_ref().filter(|(at, _)| *at > asked) {
            return Shown { look: last.look.clone(), trouble: Some(trouble.clone()) };
        }
        match look.await {
            Ok(found) => {
                let look = Look { found: Arc::new(found), at: Utc::now(), looked: Instant::now() };
                *last = Last { look: Some(look.clone()), failed: None };
                Shown { look: Some(look), trouble: None }
            }
            Err(error) => {
                last.failed = Some((Instant::now(), error.clone()));
                Shown { look: last.look.clone(), trouble: Some(error) }
            }
        }
    }

    /// Somebody acted here: the next look is a new one.
    pub(super) async fn outdate(&self) {
        let pages: Vec<Arc<Page>> = {
            let pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
            pages.values().map(|(page, _)| Arc::clone(page)).collect()
        };
        let Some(long_ago) = Instant::now().checked_sub(Duration::from_secs(3600)) else { return };
        for page in pages {
            if let Some(look) = &mut page.last.lock().await.look {
                look.looked = long_ago;
            }
        }
    }

    fn page(&self, name: &str) -> Arc<Page> {
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
    async fn however_many_ask_there_is_one_look() {
        let (looks, count) = (Looks::default(), AtomicUsize::new(0));
        let ask = || {
            looks.at("/", LONG, async {
                tokio::task::yield_now().await;
                Ok(json!(count.fetch_add(1, Ordering::Relaxed)))
            })
        };
        let all = futures_util::future::join_all((0..50).map(|_| ask())).await;
        assert!(all.iter().all(|shown| *shown.look.as_ref().unwrap().found == json!(0)));
        looks.outdate().await;
        assert_eq!(*ask().await.look.unwrap().found, json!(1));
    }

    #[tokio::test]
    async fn whoever_waited_for_a_look_that_failed_does_not_look_again() {
        let (looks, count) = (Looks::default(), AtomicUsize::new(0));
        let ask = || {
            looks.at("/", LONG, async {
                tokio::task::yield_now().await;
                count.fetch_add(1, Ordering::Relaxed);
                Err(Problem::new(Kind::Unavailable, "gone"))
            })
        };
        let all = futures_util::future::join_all((0..50).map(|_| ask())).await;
        assert!(all.iter().all(|shown| shown.trouble.is_some()));
        assert_eq!(count.load(Ordering::Relaxed), 1);
        assert!(ask().await.trouble.is_some());
        assert_eq!(count.load(Ordering::Relaxed), 2, "whoever asks later looks");
    }

    #[tokio::test]
    async fn the_last_look_is_kept_while_postgres_is_away() {
        let looks = Looks::default();
        let away = async || Err(Problem::new(Kind::Unavailable, "gone"));
        let nothing = looks.at("/", LONG, away()).await;
        assert!(nothing.look.is_none() && nothing.trouble.is_some());
        let found = looks.at("/", LONG, async { Ok(json!(7)) }).await.look.unwrap();
        let stale = looks.at("/", Duration::ZERO, away()).await;
        assert_eq!(stale.look.unwrap().at, found.at);
        assert!(stale.trouble.is_some());
    }

    #[tokio::test]
    async fn a_bounded_number_of_pages_is_kept() {
        let looks = Looks::default();
        for n in 0..PAGES_MAX * 3 {
            looks.at(&n.to_string(), LONG, async { Ok(json!(n)) }).await;
        }
        assert_eq!(looks.pages.lock().unwrap().len(), PAGES_MAX);
        let kept = looks.pages.lock().unwrap();
        assert!(!kept.contains_key("0") && kept.contains_key(&(PAGES_MAX * 3 - 1).to_string()));
    }
}
