//! First successes of a key come in the order in which the app wrote them.

use std::collections::BTreeMap;

use super::{Index, Rule, Verdict, seconds};
use crate::evidence::{Answer, Asked, Micros, Outcome, Subject};

/// Left out: what an operator sent back to work, which goes last; late successes of what had ended otherwise; and what
/// the app does not know to have ended before it wrote the next, which is not serialised.
pub(super) fn judge(index: &Index<'_>, verdict: &mut Verdict) {
    let mut last: BTreeMap<&str, (usize, i64, Micros)> = BTreeMap::new();
    // By number, which is the app's order; the place in the ledger is the order of arrival.
    for (key, number) in keyed(index) {
        let subject = Subject::Number(number);
        let Some(row) = index.evidence.rows.get(&subject) else { continue };
        if row.status != "SENT" || row.is_late || index.evidence.retried.contains(&subject) {
            continue;
        }
        let accepted = index.arrivals(&subject).iter().find(|arrival| arrival.answer == Answer::Accepted);
        let Some(first) = accepted else { continue };
        let place = place_of(index, first);
        match last.get(key) {
            Some((before, earlier, at)) if *before > place => {
                let known = format!(
                    "key {key}: first success {}, and that of {earlier}, written before it, {}",
                    seconds(first.at),
                    seconds(*at)
                );
                verdict.accuse(Rule::Order, &subject, Some(row), known);
            }
            _ => {
                last.insert(key, (place, number, first.at));
            }
        }
    }
}

/// Keys and numbers, in the order of the numbers.
fn keyed<'a>(index: &Index<'a>) -> Vec<(&'a str, i64)> {
    let writes = index.evidence.writes.iter();
    let keyed = writes.filter_map(|write| {
        let is_notification = matches!(write.asked, Asked::Notification { .. });
        let counts = is_notification && write.outcome == Outcome::Committed;
        Some((write.key.as_deref()?, write.number)).filter(|_| counts)
    });
    let mut keyed: Vec<(&str, i64)> = keyed.collect();
    keyed.sort_by_key(|(_, number)| *number);
    keyed
}

/// Its line in the ledger: times may be equal, lines are not.
fn place_of(index: &Index<'_>, arrival: &crate::evidence::Arrival) -> usize {
    let ledger = &index.evidence.arrivals;
    let from = ledger.partition_point(|other| other.at < arrival.at);
    from + ledger[from..].iter().position(|other| std::ptr::eq(other, arrival)).unwrap_or(0)
}
