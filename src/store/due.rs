//! What is due is found by its time: second by second, and in each topic by topic.
//!
//! A *round* goes from the first second to now, so many steps at a time, and begins anew. Rows that went leave dead index
//! entries behind at its beginning. While those make rounds expensive (a foreign snapshot keeps vacuum from them), there
//! are fewer, and in between only what fell due lately is searched for; so it is while a round is long because much is
//! due. What came in before that, by a transaction that committed late, is found by the next round.

use std::time::{Duration, Instant};

use chrono::{DateTime, TimeDelta, Utc};
use tokio_postgres::Row;

use super::Result;
use super::refusal::Values;
use crate::retry::{is_cheap, rest_after};

/// Steps of one search: topics of a second.
pub(crate) const STEPS_MAX: u32 = 500;
/// Rounds are this far apart if they are expensive.
const ROUND_EVERY: Duration = Duration::from_secs(2);
/// How far back lately goes: a row is due when it is written, and seen when it is committed.
const LATELY: TimeDelta = TimeDelta::seconds(5);

/// Where a search begins: after this topic of this second.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    /// The second.
    pub second: DateTime<Utc>,
    /// The topic.
    pub topic: String,
}

impl Place {
    /// Before everything.
    pub fn beginning() -> Place {
        Place::before(DateTime::from_timestamp(-62_135_596_800, 0).unwrap_or_default())
    }

    fn before(second: DateTime<Utc>) -> Place {
        Place { second, topic: String::new() }
    }
}

/// What a search says beside the topics that it found.
#[derive(Debug, Clone, PartialEq)]
pub struct Searched {
    /// Steps made.
    pub steps: u32,
    /// There may be more after this.
    pub more: Option<Place>,
    /// By the database's clock.
    pub asked_at: DateTime<Utc>,
    /// There is something to look for in so long; `None`: nothing within a minute.
    pub next_in: Option<Duration>,
}

impl Searched {
    /// Columns of each row: steps, last_second, last_topic, asked_at, next_in_ms.
    pub(super) fn of(rows: &[Row]) -> Result<Searched> {
        let row = rows.first().ok_or_else(|| super::Error::Bug("a search for what is due has no row".into()))?;
        let steps = u32::try_from(row.value::<i32>("steps")?).unwrap_or(0);
        let last: (Option<DateTime<Utc>>, Option<String>) = (row.value("last_second")?, row.value("last_topic")?);
        let more = match last {
            (Some(second), Some(topic)) if steps >= STEPS_MAX => Some(Place { second, topic }),
            _ => None,
        };
        let next_in = row.value::<Option<i64>>("next_in_ms")?;
        let next_in = next_in.map(|ms| Duration::from_millis(u64::try_from(ms).unwrap_or(0)));
        Ok(Searched { steps, more, asked_at: row.value("asked_at")?, next_in })
    }
}

/// Which part of the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The next steps of a round.
    Round,
    /// What fell due lately.
    Lately,
}

/// How far a search has come, and when it goes on. Pure.
#[derive(Debug)]
pub struct Search {
    /// Where the round goes on; `None`: it begins.
    round: Option<Place>,
    lately: Option<Place>,
    cost: Duration,
    is_cheap: bool,
    round_at: Instant,
    next_at: Option<Instant>,
}

impl Search {
    /// Has found nothing yet.
    pub fn new(now: Instant) -> Search {
        Search { round: None, lately: None, cost: Duration::ZERO, is_cheap: true, round_at: now, next_at: Some(now) }
    }

    /// What to search now.
    pub fn parts(&self, now: Instant) -> Vec<(Part, Place)> {
        let is_round = self.is_under_way() || self.is_cheap || now >= self.round_at;
        let round = is_round.then(|| (Part::Round, self.round.clone().unwrap_or_else(Place::beginning)));
        let lately = self.lately.clone().filter(|_| !is_round || self.is_under_way());
        round.into_iter().chain(lately.map(|place| (Part::Lately, place))).collect()
    }

    /// A round has begun and not ended.
    pub fn is_under_way(&self) -> bool {
        self.round.is_some()
    }

    /// The next round may begin whatever the last one cost.
    pub fn begin_now(&mut self, now: Instant) {
        self.round_at = now;
    }

    /// When the next round begins in any case.
    pub fn round_at(&self) -> Instant {
        self.round_at
    }

    /// A part was searched, at this cost. Says whether a round has ended with it.
    pub fn note(&mut self, part: Part, searched: &Searched, cost: Duration) -> bool {
        let now = Instant::now();
        let lately = || Place::before(searched.asked_at - LATELY);
        let has_ended = part == Part::Round && searched.more.is_none();
        if part == Part::Lately || has_ended {
            self.lately = Some(searched.more.clone().unwrap_or_else(lately));
        }
        if part == Part::Round {
            self.cost += cost;
            self.lately.get_or_insert_with(lately);
            self.round = searched.more.clone();
        }
        if has_ended {
            self.is_cheap = is_cheap(self.cost);
            self.round_at = now + rest_after(self.cost, ROUND_EVERY);
            self.cost = Duration::ZERO;
        }
        self.next_at = if self.is_under_way() || searched.more.is_some() {
            Some(now)
        } else {
            searched.next_in.map(|next_in| now + next_in)
        };
        has_ended
    }

    /// When there is something to search for by its time, as far as is known.
    pub fn next_at(&self) -> Option<Instant> {
        self.next_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHEAP: Duration = Duration::from_millis(1);
    const DEAR: Duration = Duration::from_millis(100);

    fn place(second: i64, topic: &str) -> Place {
        Place { second: DateTime::from_timestamp(second, 0).unwrap(), topic: topic.into() }
    }

    fn searched(more: Option<Place>) -> Searched {
        Searched { steps: 1, more, asked_at: DateTime::from_timestamp(1_000, 0).unwrap(), next_in: None }
    }

    #[test]
    fn a_cheap_round_is_all_there_is_to_search() {
        let mut search = Search::new(Instant::now());
        for _ in 0..3 {
            assert_eq!(search.parts(Instant::now()), [(Part::Round, Place::beginning())]);
            assert!(search.note(Part::Round, &searched(None), CHEAP));
        }
    }

    #[test]
    fn an_expensive_round_rests_and_what_fell_due_lately_is_searched_for_meanwhile() {
        let mut search = Search::new(Instant::now());
        search.note(Part::Round, &searched(None), DEAR);
        assert_eq!(search.parts(Instant::now()), [(Part::Lately, place(995, ""))]);
        assert!(!search.note(Part::Lately, &searched(None), CHEAP));
        assert_eq!(search.parts(Instant::now()), [(Part::Lately, place(995, ""))]);
        let later = Instant::now() + DEAR * 21;
        assert_eq!(search.parts(later), [(Part::Round, Place::beginning())]);
    }

    #[test]
    fn a_long_round_goes_on_where_it_was_beside_what_falls_due_meanwhile() {
        let mut search = Search::new(Instant::now());
        assert!(!search.note(Part::Round, &searched(Some(place(7, "m"))), DEAR));
        let now = Instant::now();
        assert_eq!(search.parts(now), [(Part::Round, place(7, "m")), (Part::Lately, place(995, ""))]);
        assert!(search.next_at().is_some_and(|at| at <= now), "at once");
        assert!(!search.note(Part::Lately, &searched(Some(place(996, "z"))), CHEAP));
        assert_eq!(search.parts(now)[1], (Part::Lately, place(996, "z")));
        assert!(search.note(Part::Round, &searched(None), CHEAP));
        assert!(!search.is_under_way());
    }
}
