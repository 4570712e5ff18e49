//! Events are appended at least once, first appends in order per key, and nothing is appended that was not committed.
//!
//! A consumer that reads all the time sees an event unless Redis lost it first. The stream keeps its order, so an event
//! that was never seen although a later one was must have been lost by Redis in between.

use std::collections::{BTreeMap, HashMap};

use super::{Index, Rule, Verdict, seconds};
use crate::evidence::{Asked, Micros, Outcome, Sighting, Subject, Write};

pub(super) fn judge(index: &Index<'_>, verdict: &mut Verdict) {
    let mut first_seen: HashMap<i64, Micros> = HashMap::new();
    let mut first_sights: Vec<Sighting> = Vec::new();
    for sighting in &index.evidence.sightings {
        if first_seen.insert(sighting.number, sighting.at).is_none() {
            first_sights.push(*sighting);
        }
    }
    let mut last_of_key: BTreeMap<&str, i64> = BTreeMap::new();
    for sight in &first_sights {
        let subject = Subject::Number(sight.number);
        let write = index.writes.get(&sight.number).filter(|write| write.asked == Asked::Event);
        let Some(write) = write else {
            verdict.accuse(Rule::Event, &subject, None, "nobody published it".to_owned());
            continue;
        };
        judge_sight(index, write, *sight, &mut last_of_key, verdict);
    }
    judge_unseen(index, &first_seen, verdict);
}

fn judge_sight<'a>(
    index: &Index<'a>,
    write: &Write,
    sight: Sighting,
    last_of_key: &mut BTreeMap<&'a str, i64>,
    verdict: &mut Verdict,
) {
    let subject = Subject::Number(sight.number);
    if !index.evidence.committed.contains(&write.number) {
        if !index.in_a_lost_tail(write.began, write.ended) || write.outcome == Outcome::RolledBack {
            let known = format!("seen {}, though never committed", seconds(sight.at));
            verdict.accuse(Rule::Event, &subject, None, known);
        }
        return;
    }
    verdict.events_seen += 1;
    if write.outcome != Outcome::Committed {
        return;
    }
    let Some(key) = index.writes.get(&sight.number).and_then(|write| write.key.as_deref()) else { return };
    let last = last_of_key.entry(key).or_insert(sight.number);
    if *last > sight.number {
        let known = format!("key {key}: seen {} after {last}, which was published later", seconds(sight.at));
        verdict.accuse(Rule::Event, &subject, None, known);
    }
    *last = (*last).max(sight.number);
}

fn judge_unseen(index: &Index<'_>, first_seen: &HashMap<i64, Micros>, verdict: &mut Verdict) {
    let mut events: Vec<&Write> = index.evidence.writes.iter().filter(|write| write.asked == Asked::Event).collect();
    events.retain(|write| index.evidence.committed.contains(&write.number));
    events.sort_by_key(|write| write.began);
    verdict.events = events.len();
    // At each place, the first sight of any event from there on.
    let mut seen_from: Vec<Micros> = vec![Micros::MAX; events.len() + 1];
    for (place, write) in events.iter().enumerate().rev() {
        let seen = first_seen.get(&write.number).copied().unwrap_or(Micros::MAX);
        seen_from[place] = seen_from[place + 1].min(seen);
    }
    for write in events.iter().filter(|write| !first_seen.contains_key(&write.number)) {
        let later_seen = seen_from[events.partition_point(|other| other.began <= write.ended)];
        if index.evidence.redis_losses.iter().any(|loss| loss.meets(write.began, later_seen)) {
            verdict.events_gone_with_redis += 1;
            continue;
        }
        let known = format!("committed {}, never seen in its stream, and Redis lost nothing", seconds(write.ended));
        verdict.accuse(Rule::Event, &Subject::Number(write.number), None, known);
    }
}
