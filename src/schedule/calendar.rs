//! Slots: a cron expression read in a time zone.
//!
//! Daylight saving follows the zone. A time of day that a spring night skips becomes the first minute after the gap;
//! one that an autumn night repeats comes once, the first time. Expressions that name every hour or minute come in each
//! hour there is.

use chrono::{DateTime, TimeDelta, Utc};
use chrono_tz::Tz;
use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};

/// Slots dealt with at a time.
const SLOTS_MAX: usize = 1_000;
/// Runs begun at a time; the rest follow at the next pass.
const RUNS_MAX: usize = 50;
/// Slots missed or paused that get a row each; missed ones that are older are summed up in the first of them.
const MISSED_MAX: usize = 100;

/// Why a schedule has no slots.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Not a cron expression of five fields.
    #[error("cron {cron:?} is not understood: {reason}")]
    Cron {
        /// The expression.
        cron: String,
        /// The parser's words.
        reason: String,
    },
    /// Postgres knows this zone and we do not.
    #[error("time zone {0:?} is not known here; use a name of the tz database such as Asia/Seoul")]
    Zone(String),
    /// A date that does not exist, such as 31 February.
    #[error("cron {0:?} names no date that ever comes")]
    Never(String),
}

/// When a schedule runs.
#[derive(Debug, Clone)]
pub struct Calendar {
    cron: Cron,
    text: String,
    zone: Tz,
}

/// When slots are dealt with, and which of them run.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    /// The database's clock.
    pub now: DateTime<Utc>,
    /// So long before it comes, a slot is dealt with.
    pub lead: TimeDelta,
    /// So long after it came, a slot still runs.
    pub catch_up: TimeDelta,
    /// Slots up to here passed while the schedule was paused.
    pub paused_until: DateTime<Utc>,
}

/// What is to be done about slots up to now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Due {
    /// To be prepared.
    pub runs: Vec<DateTime<Utc>>,
    /// Too old, with a reason.
    pub missed: Vec<(DateTime<Utc>, String)>,
    /// They came while the schedule was paused.
    pub paused: Vec<DateTime<Utc>>,
    /// The first slot that is not dealt with.
    pub next: Option<DateTime<Utc>>,
}

impl Calendar {
    /// Reads an expression of five fields, or a nickname such as `@daily`.
    pub fn parse(cron: &str, zone: &str) -> Result<Calendar, Error> {
        let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
        let parsed =
            parser.parse(cron).map_err(|error| Error::Cron { cron: cron.to_owned(), reason: error.to_string() })?;
        let zone = zone.parse().map_err(|_| Error::Zone(zone.to_owned()))?;
        Ok(Calendar { cron: parsed, text: cron.to_owned(), zone })
    }

    /// The first slot after a time.
    pub fn after(&self, time: DateTime<Utc>) -> Result<DateTime<Utc>, Error> {
        let next = self.cron.find_next_occurrence(&time.with_timezone(&self.zone), false);
        next.map(|slot| slot.with_timezone(&Utc)).map_err(|_| Error::Never(self.text.clone()))
    }

    /// Sorts the slots from `next` on that are within `lead` of `now`: those older than `catch_up` are missed.
    pub fn due(&self, next: DateTime<Utc>, window: Window) -> Result<Due, Error> {
        let Window { now, lead, catch_up, paused_until } = window;
        let mut due = Due::default();
        let mut slot = next;
        for _ in 0..SLOTS_MAX {
            if slot - lead > now || due.runs.len() == RUNS_MAX {
                break;
            }
            if slot <= paused_until {
                due.paused.push(slot);
            } else if slot + catch_up < now {
                due.missed.push((slot, "no instance ran in time".to_owned()));
            } else {
                due.runs.push(slot);
            }
            slot = self.after(slot)?;
        }
        let surplus = due.missed.len().saturating_sub(MISSED_MAX);
        due.missed.drain(..surplus);
        if let Some((_, reason)) = due.missed.first_mut().filter(|_| surplus > 0) {
            *reason = format!("no instance ran in time, nor for {surplus} slots before");
        }
        due.paused.drain(..due.paused.len().saturating_sub(MISSED_MAX));
        due.next = Some(slot);
        Ok(due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn utc(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    fn window(now: &str, lead: i64, catch_up: i64) -> Window {
        let (lead, catch_up) = (TimeDelta::minutes(lead), TimeDelta::minutes(catch_up));
        Window { now: utc(now), lead, catch_up, paused_until: DateTime::<Utc>::MIN_UTC }
    }

    /// The slots after a time, in the zone's own words.
    fn slots(cron: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
        let calendar = Calendar::parse(cron, zone).unwrap();
        let mut time = utc(after);
        let next = || {
            time = calendar.after(time).unwrap();
            time.with_timezone(&calendar.zone).format("%F %H:%M %:z").to_string()
        };
        std::iter::repeat_with(next).take(count).collect()
    }

    #[test]
    fn nine_in_seoul_is_midnight_in_utc() {
        let calendar = Calendar::parse("0 9 * * *", "Asia/Seoul").unwrap();
        assert_eq!(calendar.after(utc("2026-03-01T00:00:00Z")).unwrap(), utc("2026-03-02T00:00:00Z"));
        assert_eq!(calendar.after(utc("2026-02-28T23:59:59Z")).unwrap(), utc("2026-03-01T00:00:00Z"));
    }

    #[test]
    fn a_time_that_the_spring_night_skips_comes_right_after_the_gap_and_once() {
        let days = slots("30 2 * * *", "America/New_York", "2026-03-07T12:00:00Z", 3);
        assert_eq!(days, ["2026-03-08 03:00 -04:00", "2026-03-09 02:30 -04:00", "2026-03-10 02:30 -04:00"]);
        let days = slots("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", 2);
        assert_eq!(days, ["2026-03-29 03:00 +02:00", "2026-03-30 02:30 +02:00"]);
    }

    #[test]
    fn a_time_that_the_autumn_night_repeats_comes_once() {
        let days = slots("30 1 * * *", "America/New_York", "2026-10-31T12:00:00Z", 3);
        assert_eq!(days, ["2026-11-01 01:30 -04:00", "2026-11-02 01:30 -05:00", "2026-11-03 01:30 -05:00"]);
    }

    #[test]
    fn every_half_hour_comes_in_each_hour_there_is() {
        let spring = slots("30 * * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", 3);
        assert_eq!(spring, ["2026-03-29 01:30 +01:00", "2026-03-29 03:30 +02:00", "2026-03-29 04:30 +02:00"]);
        let autumn = slots("30 * * * *", "Europe/Berlin", "2026-10-24T23:45:00Z", 4);
        let hours = ["2026-10-25 02:30 +02:00", "2026-10-25 02:30 +01:00", "2026-10-25 03:30 +01:00"];
        assert_eq!(autumn[..3], hours);
    }

    #[test]
    fn what_is_not_understood_says_why() {
        let refused = |cron, zone| Calendar::parse(cron, zone).map(|_| ()).unwrap_err().to_string();
        assert!(refused("0 9 * *", "UTC").starts_with("cron \"0 9 * *\" is not understood: "));
        assert!(refused("0 0 9 * * *", "UTC").contains("is not understood"), "seconds");
        assert!(refused("0 9 * * MOO", "UTC").contains("is not understood"));
        assert!(refused("0 9 * * *", "Mars/Olympus").starts_with("time zone \"Mars/Olympus\" is not known"));
        let never = Calendar::parse("0 9 31 2 *", "UTC").unwrap().after(utc("2026-01-01T00:00:00Z"));
        assert_eq!(never, Err(Error::Never("0 9 31 2 *".into())));
    }

    #[test]
    fn slots_within_their_lead_run_late_ones_too_and_old_ones_are_missed() {
        let calendar = Calendar::parse("0 * * * *", "UTC").unwrap();
        let due = |now, lead, catch_up| calendar.due(utc("2026-01-01T09:00:00Z"), window(now, lead, catch_up)).unwrap();
        assert!(due("2026-01-01T08:49:59Z", 10, 60).runs.is_empty(), "not yet");
        let early = due("2026-01-01T08:50:00Z", 10, 60);
        assert_eq!((early.runs, early.next), (vec![utc("2026-01-01T09:00:00Z")], Some(utc("2026-01-01T10:00:00Z"))));
        let late = due("2026-01-01T11:30:00Z", 0, 60);
        assert_eq!(late.runs, [utc("2026-01-01T11:00:00Z")]);
        let missed: Vec<_> = late.missed.iter().map(|(slot, _)| *slot).collect();
        assert_eq!(missed, [utc("2026-01-01T09:00:00Z"), utc("2026-01-01T10:00:00Z")]);
        assert_eq!(late.next, Some(utc("2026-01-01T12:00:00Z")));
    }

    #[test]
    fn slots_that_came_during_a_pause_neither_run_nor_are_missed() {
        let calendar = Calendar::parse("0 * * * *", "UTC").unwrap();
        let paused_until = utc("2026-01-01T10:00:00Z");
        let resumed = Window { paused_until, ..window("2026-01-01T11:30:00Z", 0, 600) };
        let due = calendar.due(utc("2026-01-01T09:00:00Z"), resumed).unwrap();
        assert_eq!(due.paused, [utc("2026-01-01T09:00:00Z"), utc("2026-01-01T10:00:00Z")]);
        assert_eq!((due.runs, due.missed), (vec![utc("2026-01-01T11:00:00Z")], vec![]));
    }

    #[test]
    fn a_long_outage_is_summed_up() {
        let calendar = Calendar::parse("* * * * *", "UTC").unwrap();
        let start = utc("2026-01-01T00:00:00Z");
        let due = calendar.due(start, window("2026-02-01T00:00:00Z", 0, 5)).unwrap();
        assert_eq!((due.runs.len(), due.missed.len()), (0, 100));
        assert_eq!(due.missed[0].1, "no instance ran in time, nor for 900 slots before");
        assert_eq!(due.next, Some(start + TimeDelta::minutes(1_000)));
    }
}
