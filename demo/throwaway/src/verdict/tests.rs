use super::*;
use crate::evidence::Sighting;

const S: Micros = 1_000_000;

fn write(number: i64) -> Write {
    Write {
        number,
        asked: Asked::Notification { dedup_key: None, is_delayed: false },
        key: None,
        began: number.unsigned_abs() * S,
        ended: number.unsigned_abs() * S + 1000,
        outcome: Outcome::Committed,
    }
}

fn row(id: i64, status: &str) -> Row {
    Row {
        id,
        status: status.to_owned(),
        dedup_key: None,
        attempts: 1,
        witnesses: Vec::new(),
        is_late: false,
        probes: 0,
    }
}

fn arrival(number: i64, at: Micros, attempt: u32, answer: Answer) -> Arrival {
    let subject = Subject::Number(number);
    Arrival { at, subject, channel: "push".into(), webhook_id: format!("ntf-x-{number}-1"), attempt, answer }
}

/// Five notifications, the last three of one key, each delivered at once.
fn clean() -> Evidence {
    let mut evidence = Evidence::default();
    for number in 1..=5 {
        let key = (number > 2).then(|| "k".to_owned());
        evidence.writes.push(Write { key, ..write(number) });
        evidence.committed.insert(number);
        evidence.rows.insert(Subject::Number(number), row(number + 100, "SENT"));
        let at = number.unsigned_abs() * S + 5000;
        evidence.arrivals.push(arrival(number, at, 1, Answer::Accepted));
    }
    evidence
}

fn rules(evidence: &Evidence) -> Vec<(Rule, Option<i64>)> {
    judge(evidence).violations.iter().map(|violation| (violation.rule, violation.number)).collect()
}

#[test]
fn a_clean_run_passes() {
    let verdict = judge(&clean());
    assert!(verdict.is_good(), "{:?}", verdict.violations);
    assert_eq!((verdict.committed, verdict.delivered, verdict.repeats), (5, 5, 0));
}

#[test]
fn a_sent_row_that_no_provider_accepted_is_lost() {
    let mut evidence = clean();
    evidence.arrivals.remove(1);
    assert_eq!(rules(&evidence), [(Rule::Lost, Some(2))]);
    evidence.arrivals.insert(1, arrival(2, 2 * S + 5000, 1, Answer::Refused(503)));
    assert_eq!(rules(&evidence), [(Rule::Lost, Some(2))], "a refusal is not a delivery");
}

#[test]
fn a_row_that_has_not_ended_is_lost() {
    let mut evidence = clean();
    evidence.rows.insert(Subject::Number(2), row(102, "QUEUED"));
    assert_eq!(rules(&evidence), [(Rule::Lost, Some(2))]);
}

#[test]
fn an_order_without_its_row_is_lost() {
    let mut evidence = clean();
    evidence.rows.remove(&Subject::Number(2));
    evidence.arrivals.remove(1);
    assert_eq!(rules(&evidence), [(Rule::Lost, Some(2))]);
}

#[test]
fn a_call_for_what_was_rolled_back_is_a_phantom() {
    let mut evidence = clean();
    evidence.writes.push(Write { outcome: Outcome::RolledBack, ..write(6) });
    assert_eq!(rules(&evidence), []);
    evidence.arrivals.push(arrival(6, 6 * S, 1, Answer::Refused(503)));
    assert_eq!(rules(&evidence), [(Rule::Phantom, Some(6))]);
}

#[test]
fn an_unknown_commit_may_be_there_or_not_but_a_call_needs_its_row() {
    let mut evidence = clean();
    evidence.writes.push(Write { outcome: Outcome::Unknown, ..write(6) });
    assert_eq!(rules(&evidence), []);
    evidence.arrivals.push(arrival(6, 6 * S, 1, Answer::Accepted));
    assert_eq!(rules(&evidence), [(Rule::Phantom, Some(6))]);
    evidence.committed.insert(6);
    evidence.rows.insert(Subject::Number(6), row(106, "SENT"));
    assert_eq!(rules(&evidence), []);
}

#[test]
fn a_repeat_needs_a_witness() {
    let mut evidence = clean();
    evidence.arrivals.push(arrival(2, 9 * S, 2, Answer::Accepted));
    assert_eq!(rules(&evidence), [(Rule::Repeat, Some(2))]);
    let mut with = |attempts: u32, witnesses: &[Option<u32>]| {
        let row = Row { attempts, witnesses: witnesses.to_vec(), ..row(102, "SENT") };
        evidence.rows.insert(Subject::Number(2), row);
        rules(&evidence)
    };
    assert_eq!(with(2, &[Some(1)]), [], "the first failed, the second is the success");
    assert_eq!(with(1, &[None]), [], "the second is a duplicate");
    assert_eq!(with(2, &[]), [(Rule::Repeat, Some(2))]);
    assert_eq!(with(3, &[Some(2)]), [(Rule::Repeat, Some(2))], "a witness of another call");
    assert_eq!(judge(&evidence).repeats, 1);
}

#[test]
fn one_attempt_that_calls_twice_has_no_witness() {
    let mut evidence = clean();
    let witnesses = vec![Some(1), Some(2), None];
    evidence.rows.insert(Subject::Number(2), Row { witnesses, ..row(102, "SENT") });
    evidence.arrivals.push(arrival(2, 9 * S, 1, Answer::Accepted));
    assert_eq!(rules(&evidence), [(Rule::Repeat, Some(2))]);
}

#[test]
fn a_probe_that_failed_is_a_witness_of_one_call_and_uses_up_no_attempt() {
    let mut evidence = clean();
    evidence.rows.insert(Subject::Number(2), Row { witnesses: vec![None], probes: 1, ..row(102, "SENT") });
    evidence.arrivals.insert(1, arrival(2, 2 * S, 1, Answer::Refused(503)));
    assert_eq!(rules(&evidence), []);
    evidence.arrivals.insert(1, arrival(2, 2 * S, 1, Answer::Refused(503)));
    assert_eq!(rules(&evidence), [(Rule::Repeat, Some(2))], "a third call");
}

#[test]
fn a_first_success_after_a_later_one_of_its_key_is_a_violation() {
    let mut evidence = clean();
    evidence.arrivals.swap(2, 3);
    let at = evidence.arrivals[2].at;
    evidence.arrivals[2].at = evidence.arrivals[3].at;
    evidence.arrivals[3].at = at;
    evidence.arrivals.swap(2, 3);
    evidence.arrivals[2].subject = Subject::Number(4);
    evidence.arrivals[3].subject = Subject::Number(3);
    assert_eq!(rules(&evidence), [(Rule::Order, Some(4))]);
    evidence.retried.insert(Subject::Number(3));
    assert_eq!(rules(&evidence), [], "an operator's retry goes last");
}

#[test]
fn one_of_two_with_the_same_dedup_key_is_enough() {
    let mut evidence = clean();
    let asked = Asked::Notification { dedup_key: Some("d".into()), is_delayed: false };
    evidence.writes.push(Write { asked, ..write(6) });
    evidence.committed.insert(6);
    assert_eq!(rules(&evidence), [(Rule::Lost, Some(6))]);
    evidence.rows.get_mut(&Subject::Number(1)).unwrap().dedup_key = Some("d".into());
    assert_eq!(rules(&evidence), []);
    assert_eq!(judge(&evidence).absorbed, 1);
    evidence.arrivals.push(arrival(6, 9 * S, 1, Answer::Accepted));
    assert_eq!(rules(&evidence), [(Rule::Phantom, Some(6))], "both were sent");
}

#[test]
fn what_went_with_the_tail_is_told_apart() {
    let mut evidence = clean();
    evidence.writes.push(write(20));
    evidence.arrivals.push(arrival(20, 20 * S + 5000, 1, Answer::Accepted));
    // The record of this success is gone, so the same attempt is made again.
    evidence.arrivals[4].at = 20 * S;
    evidence.arrivals.push(arrival(5, 26 * S, 1, Answer::Accepted));
    assert_eq!(rules(&evidence), [(Rule::Lost, Some(20)), (Rule::Phantom, Some(20)), (Rule::Repeat, Some(5))]);
    evidence.lost_tails.push(Span { from: 19 * S, until: 21 * S });
    assert_eq!(rules(&evidence), []);
    let verdict = judge(&evidence);
    assert_eq!((verdict.gone_with_the_tail, verdict.repeats, verdict.repeats_by_the_tail), (1, 1, 1));
}

#[test]
fn an_unknown_outcome_that_went_with_the_tail_is_no_repeat_without_a_witness() {
    let mut evidence = clean();
    // Its worker died; 9 s later the sweep notes that, and it is called again; the tail has both.
    evidence.arrivals[4].at = 20 * S;
    evidence.arrivals.push(arrival(5, 29 * S + 1000, 2, Answer::Accepted));
    assert_eq!(rules(&evidence), [(Rule::Repeat, Some(5))]);
    evidence.lost_tails.push(Span { from: 29 * S, until: 30 * S });
    assert_eq!(rules(&evidence), []);
    evidence.lost_tails[0] = Span { from: 33 * S, until: 34 * S };
    assert_eq!(rules(&evidence), [(Rule::Repeat, Some(5))], "long recorded by then");
}

#[test]
fn events_are_seen_once_at_least_and_in_order_per_key() {
    let mut evidence = Evidence::default();
    for number in 1..=3 {
        evidence.writes.push(Write { asked: Asked::Event, key: Some("k".into()), ..write(number) });
        evidence.committed.insert(number);
    }
    let see = |evidence: &mut Evidence, numbers: &[i64]| {
        evidence.sightings = numbers.iter().map(|number| Sighting { at: 10 * S, number: *number }).collect();
    };
    see(&mut evidence, &[1, 2, 1, 2, 3]);
    assert_eq!(rules(&evidence), [], "a batch appended again repeats in order");
    see(&mut evidence, &[1, 3, 2]);
    assert_eq!(rules(&evidence), [(Rule::Event, Some(2))]);
    see(&mut evidence, &[1, 3]);
    assert_eq!(rules(&evidence), [(Rule::Event, Some(2))]);
    evidence.redis_losses.push(Span { from: 5 * S, until: 5 * S });
    assert_eq!(rules(&evidence), []);
    see(&mut evidence, &[1, 2, 3, 4]);
    assert_eq!(rules(&evidence), [(Rule::Event, Some(4))], "nobody published it");
}
