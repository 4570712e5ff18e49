//! The verdict: a pure function of the evidence.
//!
//! | word | is |
//! |---|---|
//! | lost | committed and not ended, or SENT without a call that was accepted, or without a row |
//! | phantom | a call for what was not committed |
//! | repeat with a witness | a further call, of which `outboxd.attempts` has a row |
//! | repeat without | a further call that no attempt explains, or two calls of one attempt |
//! | order violation | of one key, a first success after that of a later one |
//! | late recovery | called after more than 10 s in which nothing was broken (`recovery::late` of the soak) |
//!
//! A failover to a standby that lacks the tail takes commits and records with it. What was committed in that time and
//! is not there is counted apart, and so are repeats of calls made then: their record is gone.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Serialize;

use super::evidence::{Answer, Arrival, Asked, Evidence, Micros, Outcome, Row, Span, Subject, Write};

mod events;
mod order;
#[cfg(test)]
mod tests;

/// Calls made so long before the tail began may have their record in it; so long after it ended, their claim. A call
/// whose worker died is recorded as unknown by the sweep after its lease: 6 s, and 5 s at most between two sweeps.
const BEFORE_TAIL: Micros = 12_000_000;
const AFTER_TAIL: Micros = 12_000_000;

/// Something that must not be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// Which promise.
    pub rule: Rule,
    /// The app's number, if it has one.
    pub number: Option<i64>,
    /// The row's id, if there is one.
    pub id: Option<i64>,
    /// What is known of it.
    pub known: String,
}

/// The promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// Nothing is lost.
    Lost,
    /// Nothing is sent that was not committed.
    Phantom,
    /// Every repeat has a witness.
    Repeat,
    /// First successes of a key are in order.
    Order,
    /// Events are appended, in order per key.
    Event,
    /// What is due is called soon once nothing is broken.
    Late,
    /// Rows are in states that may be, slots are copied once, instances do not crash.
    State,
}

/// What came out.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Verdict {
    /// Notifications in the database at the end.
    pub committed: usize,
    /// SENT.
    pub delivered: usize,
    /// FAILED: the providers refused.
    pub failed: usize,
    /// CANCELED by the operator.
    pub canceled: usize,
    /// Of several with one dedup key, those that were not the first.
    pub absorbed: usize,
    /// Rolled back, or killed before COMMIT.
    pub rolled_back: usize,
    /// The app saw COMMIT cut off.
    pub unknown: usize,
    /// Committed, and gone with the tail that a standby lacked.
    pub gone_with_the_tail: usize,
    /// Ids of what was called more than once.
    #[serde(skip)]
    pub repeated: Vec<i64>,
    /// Calls beyond the first of a notification.
    pub repeats: usize,
    /// Of them, those whose record, or whose row, went with the tail.
    pub repeats_by_the_tail: usize,
    /// Events committed, and seen by a consumer.
    pub events: usize,
    pub events_seen: usize,
    /// Appended to a Redis that then lost them.
    pub events_gone_with_redis: usize,
    /// What must not be.
    pub violations: Vec<Violation>,
}

impl Verdict {
    /// How many of a kind.
    pub fn count(&self, rule: Rule) -> usize {
        self.violations.iter().filter(|violation| violation.rule == rule).count()
    }

    /// Whether every promise was kept.
    pub fn is_good(&self) -> bool {
        self.violations.is_empty()
    }

    fn assert_none(&self, rules: &[Rule]) -> &Verdict {
        assert!(rules.iter().all(|rule| self.count(*rule) == 0), "{self:#?}");
        self
    }

    /// L and P: nothing lost, no phantom.
    pub fn assert_nothing_lost(&self) -> &Verdict {
        self.assert_none(&[Rule::Lost, Rule::Phantom])
    }

    /// D0: no duplicate.
    pub fn assert_no_duplicate(&self) -> &Verdict {
        assert_eq!(self.repeated, [0; 0], "{self:#?}");
        self
    }

    /// DA: every duplicate has an attempt with no recorded success.
    pub fn assert_duplicates_explained(&self) -> &Verdict {
        self.assert_none(&[Rule::Repeat])
    }

    fn accuse(&mut self, rule: Rule, subject: &Subject, row: Option<&Row>, known: String) {
        let (number, row_id) = match subject {
            Subject::Number(number) => (Some(*number), None),
            Subject::Row(id, _) => (None, Some(*id)),
        };
        self.violations.push(Violation { rule, number, id: row.map(|row| row.id).or(row_id), known });
    }
}

/// The evidence, found by subject.
struct Index<'a> {
    evidence: &'a Evidence,
    writes: HashMap<i64, &'a Write>,
    /// Indices into the ledger, in order.
    arrivals: BTreeMap<&'a Subject, Vec<&'a Arrival>>,
    taken_dedup_keys: HashSet<&'a str>,
}

impl<'a> Index<'a> {
    fn new(evidence: &'a Evidence) -> Index<'a> {
        let mut arrivals: BTreeMap<&Subject, Vec<&Arrival>> = BTreeMap::new();
        for arrival in &evidence.arrivals {
            arrivals.entry(&arrival.subject).or_default().push(arrival);
        }
        let writes = evidence.writes.iter().map(|write| (write.number, write)).collect();
        let taken_dedup_keys = evidence.rows.values().filter_map(|row| row.dedup_key.as_deref()).collect();
        Index { evidence, writes, arrivals, taken_dedup_keys }
    }

    fn arrivals(&self, subject: &Subject) -> &[&'a Arrival] {
        self.arrivals.get(subject).map_or(&[], Vec::as_slice)
    }

    fn in_a_lost_tail(&self, from: Micros, until: Micros) -> bool {
        self.evidence.lost_tails.iter().any(|tail| tail.meets(from, until))
    }
}

/// Judges.
pub fn judge(evidence: &Evidence) -> Verdict {
    let index = Index::new(evidence);
    let mut verdict = Verdict::default();
    for write in &evidence.writes {
        if let Asked::Notification { dedup_key, .. } = &write.asked {
            judge_write(&index, write, dedup_key.as_deref(), &mut verdict);
        }
    }
    for (subject, row) in &evidence.rows {
        judge_row(&index, subject, row, &mut verdict);
    }
    for (subject, arrivals) in &index.arrivals {
        match evidence.rows.get(subject) {
            Some(row) => judge_repeats(&index, subject, row, arrivals, &mut verdict),
            None => judge_stray(&index, subject, arrivals, &mut verdict),
        }
    }
    order::judge(&index, &mut verdict);
    events::judge(&index, &mut verdict);
    verdict.violations.sort_by_key(|violation| (violation.rule, violation.number, violation.id));
    verdict
}

/// What the app saw against what the database has.
fn judge_write(index: &Index<'_>, write: &Write, dedup_key: Option<&str>, verdict: &mut Verdict) {
    let subject = Subject::Number(write.number);
    match write.outcome {
        Outcome::RolledBack => verdict.rolled_back += 1,
        Outcome::Unknown => verdict.unknown += 1,
        Outcome::Committed => {}
    }
    if !index.evidence.committed.contains(&write.number) {
        if write.outcome != Outcome::Committed {
            return;
        }
        if index.in_a_lost_tail(write.began, write.ended) {
            verdict.gone_with_the_tail += 1;
            return;
        }
        let known = format!("the app saw COMMIT {}, and the database has no such order", seconds(write.ended));
        return verdict.accuse(Rule::Lost, &subject, None, known);
    }
    if index.evidence.rows.contains_key(&subject) {
        return;
    }
    match dedup_key {
        Some(key) if index.taken_dedup_keys.contains(key) => verdict.absorbed += 1,
        _ => {
            let known = format!("committed {} with its order, and has no row", seconds(write.ended));
            verdict.accuse(Rule::Lost, &subject, None, known);
        }
    }
}

fn judge_row(index: &Index<'_>, subject: &Subject, row: &Row, verdict: &mut Verdict) {
    verdict.committed += 1;
    let arrivals = index.arrivals(subject);
    match row.status.as_str() {
        "SENT" => {
            verdict.delivered += 1;
            if !arrivals.iter().any(|arrival| arrival.answer == Answer::Accepted) {
                let known = format!("SENT, and no provider accepted it: {}", calls(arrivals));
                verdict.accuse(Rule::Lost, subject, Some(row), known);
            }
        }
        "FAILED" => verdict.failed += 1,
        "CANCELED" => verdict.canceled += 1,
        status => {
            let known = format!("still {status}: {}", calls(arrivals));
            verdict.accuse(Rule::Lost, subject, Some(row), known);
        }
    }
    if let Subject::Number(number) = subject
        && let Some(write) = index.writes.get(number)
        && write.outcome == Outcome::RolledBack
    {
        verdict.accuse(Rule::Phantom, subject, Some(row), "has a row, though the app rolled back".to_owned());
    }
}

/// Calls for what has no row.
fn judge_stray(index: &Index<'_>, subject: &Subject, arrivals: &[&Arrival], verdict: &mut Verdict) {
    let write = match subject {
        Subject::Number(number) => index.writes.get(number),
        Subject::Row(..) => None,
    };
    let gone = match write {
        Some(write) => write.outcome != Outcome::RolledBack && index.in_a_lost_tail(write.began, write.ended),
        // A campaign's row: it was committed at some time before its call.
        None => in_reach_of_a_tail(&index.evidence.lost_tails, arrivals[0].at),
    };
    if gone {
        verdict.repeats_by_the_tail += arrivals.len() - 1;
        verdict.repeats += arrivals.len() - 1;
        return;
    }
    let outcome = write.map_or("nobody wrote it".to_owned(), |write| {
        format!("the app saw {:?} {}", write.outcome, seconds(write.ended))
    });
    verdict.accuse(Rule::Phantom, subject, None, format!("no row; {outcome}; {}", calls(arrivals)));
}

/// More calls than one.
fn judge_repeats(index: &Index<'_>, subject: &Subject, row: &Row, arrivals: &[&Arrival], verdict: &mut Verdict) {
    if arrivals.len() < 2 {
        return;
    }
    verdict.repeats += arrivals.len() - 1;
    verdict.repeated.push(row.id);
    let mut attempts = HashSet::new();
    let same_attempt = arrivals.iter().filter(|arrival| !attempts.insert(arrival.attempt)).count();
    let is_recorded = |arrival: &&&Arrival| {
        let is_success = row.status == "SENT" && arrival.attempt == row.attempts;
        is_success || row.witnesses.contains(&Some(arrival.attempt))
    };
    let unrecorded = arrivals.len() - arrivals.iter().filter(is_recorded).count();
    // Those recorded late tell no number: each stands for one.
    let late = row.witnesses.iter().filter(|number| number.is_none()).count();
    // A probe that failed uses up no attempt: the next call has its number.
    let same_attempt = same_attempt.saturating_sub(row.probes);
    let unexplained = unrecorded.saturating_sub(late).max(same_attempt);
    if arrivals.iter().any(|arrival| arrival.webhook_id != arrivals[0].webhook_id) {
        let known = format!("more than one webhook-id; {}", calls(arrivals));
        return verdict.accuse(Rule::Repeat, subject, Some(row), known);
    }
    if unexplained == 0 {
        return;
    }
    let (_, earlier) = arrivals.split_last().expect("more than one call");
    if earlier.iter().any(|arrival| in_reach_of_a_tail(&index.evidence.lost_tails, arrival.at)) {
        verdict.repeats_by_the_tail += unexplained;
        return;
    }
    let known = format!(
        "{} calls, {same_attempt} of one attempt twice; {} after {} attempts, in outboxd.attempts {:?}; {}",
        arrivals.len(),
        row.status,
        row.attempts,
        row.witnesses,
        calls(arrivals)
    );
    verdict.accuse(Rule::Repeat, subject, Some(row), known);
}

fn in_reach_of_a_tail(tails: &[Span], at: Micros) -> bool {
    tails.iter().any(|tail| tail.meets(at.saturating_sub(AFTER_TAIL), at + BEFORE_TAIL))
}

/// The calls of one notification, for people.
fn calls(arrivals: &[&Arrival]) -> String {
    let call = |arrival: &&Arrival| {
        format!("{} attempt {} by {} {:?}", seconds(arrival.at), arrival.attempt, arrival.channel, arrival.answer)
    };
    match arrivals {
        [] => "no call".to_owned(),
        arrivals => arrivals.iter().map(call).collect::<Vec<_>>().join(", "),
    }
}

fn seconds(at: Micros) -> String {
    format!("at {:.3} s", at as f64 / 1e6)
}
