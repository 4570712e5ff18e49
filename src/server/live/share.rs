//! How many sessions one ticket or one token may have, so that whoever holds it does not take the place of all others.
//!
//! **Guarantee.** What a session held is given back however it ends. **Limit.** Counted by this instance alone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Sessions of one ticket: a user's tabs and devices.
pub(super) const OF_TICKET_MAX: usize = 16;

/// The sessions of each ticket and token that has some.
#[derive(Debug, Default)]
pub(super) struct Shares(Arc<Mutex<HashMap<String, usize>>>);

/// By which right somebody listens, and how many may by the same.
#[derive(Debug)]
pub(super) struct Right {
    pub name: String,
    pub sessions_max: usize,
}

/// One session's part; it is given back with the session.
#[derive(Debug)]
pub(super) struct Share {
    name: String,
    all: Arc<Mutex<HashMap<String, usize>>>,
}

fn lock(all: &Mutex<HashMap<String, usize>>) -> MutexGuard<'_, HashMap<String, usize>> {
    all.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shares {
    /// `None`: there are as many as there may be.
    pub(super) fn take(&self, right: Right) -> Option<Share> {
        let mut all = lock(&self.0);
        let sessions = all.entry(right.name.clone()).or_default();
        if *sessions >= right.sessions_max {
            return None;
        }
        *sessions += 1;
        Some(Share { name: right.name, all: Arc::clone(&self.0) })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut all = lock(&self.all);
        if let Some(sessions) = all.get_mut(&self.name) {
            *sessions -= 1;
            if *sessions == 0 {
                all.remove(&self.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_can_be_taken_again_and_leaves_nothing_behind() {
        let shares = Shares::default();
        let take = |name: &str| shares.take(Right { name: name.to_owned(), sessions_max: 2 });
        let (one, two) = (take("a"), take("a"));
        assert!(one.is_some() && two.is_some() && take("a").is_none());
        assert!(take("b").is_some(), "others have their own");
        drop(one);
        assert!(take("a").is_some());
        drop(two);
        assert!(lock(&shares.0).is_empty());
    }
}
