//! What must hold. Each is judged at every step; that nothing is lost is judged over all states, by `explore`.

use crate::action::Action;
use crate::protocol::{Protocol, Step};
use crate::scope::App;
use crate::state::{Answer, Claim, Stage, State, Status, WorkState};

/// I2: from every state, without further faults, every row ends.
pub const NOTHING_IS_LOST: &str = "nothing is lost";
/// I5.
pub const SENT_IS_FINAL: &str = "SENT is final";
/// SENT is said only of what a provider has accepted.
pub const SENT_WAS_ACCEPTED: &str = "what is SENT was accepted";
/// I3: a provider is called again only after a recorded failure or unknown outcome.
pub const CALLS_HAVE_WITNESSES: &str = "a call is repeated only after a recorded failure or unknown outcome";
/// I6: per key at most one row is live.
pub const ONE_LIVE_ROW_PER_KEY: &str = "per key at most one row is live";
/// I6: first successes of a key come in order, for rows that were never FAILED or CANCELED.
pub const KEYS_ARE_IN_ORDER: &str = "first successes of a key come in order";
/// I6: a row waits only for rows of its own key, which belongs to its topic.
pub const KEYS_BELONG_TO_TOPICS: &str = "a key waits for nothing of another topic";
/// I4: the epoch never goes down, and a retry does not use an old one again.
pub const EPOCHS_RISE: &str = "the epoch only rises";
/// After `cancel()` has answered nobody claims the row. After "canceled" nobody calls for it either, unless that
/// attempt is recorded as unknown: its request may be under way.
pub const CANCEL_KEEPS_ITS_WORD: &str = "cancel() keeps its word";
/// I4: whoever has a 2xx and records it makes the row SENT, however late.
pub const SUCCESS_WINS: &str = "a recorded 2xx makes it SENT";
/// I4: a copy of the message that led to a failed attempt starts no other: the row waits for its time.
pub const BACKOFF_IS_KEPT: &str = "after a failure nobody claims before the row is published again";
/// Live work and its record agree.
pub const QUEUED_HAS_WORK: &str = "a record is QUEUED if and only if it has work";

/// The property that a step breaks, if it breaks one.
pub fn broken(protocol: &Protocol, before: &State, step: &Step) -> Option<&'static str> {
    match step.action {
        Action::Call { by, answer, .. } => {
            let broken = before.processes[by].claim.and_then(|claim| broken_by_call(protocol, before, claim, answer));
            if broken.is_some() {
                return broken;
            }
        }
        Action::Claim { row, .. } if before.row(row).past.answer != Answer::None => return Some(CANCEL_KEEPS_ITS_WORD),
        Action::Claim { row, .. } if before.row(row).past.backs_off => return Some(BACKOFF_IS_KEPT),
        Action::Record { by, row, answer: Stage::Accepted | Stage::Late, .. }
            if step.after.processes[by].claim.is_none() && step.after.row(row).status != Status::Sent =>
        {
            return Some(SUCCESS_WINS);
        }
        Action::Admit { by, row, has_lost: true } if !explains_loss(protocol, before, by, row) => {
            return Some(KEYS_BELONG_TO_TOPICS);
        }
        Action::Retry { row } => {
            let epoch = step.after.work(row).map_or(0, |work| work.epoch);
            if epoch <= before.row(row).past.epoch_max {
                return Some(EPOCHS_RISE);
            }
        }
        _ => {}
    }
    broken_rows(before, &step.after).or_else(|| broken_keys(protocol, &step.after))
}

fn broken_by_call(protocol: &Protocol, before: &State, claim: Claim, answer: Stage) -> Option<&'static str> {
    let row = before.row(claim.row);
    let (past, token) = (&row.past, 1_u32 << claim.token);
    let unexplained = past.called & !past.witnessed;
    let has_successor = past.called & !(token | (token - 1)) != 0;
    if past.called & token != 0 || unexplained & (token - 1) != 0 || has_successor && past.witnessed & token == 0 {
        return Some(CALLS_HAVE_WITNESSES);
    }
    if past.answer == Answer::Canceled && (protocol.cancel_is_strict || past.witnessed & token == 0) {
        return Some(CANCEL_KEEPS_ITS_WORD);
    }
    let is_first = answer != Stage::Refused && !past.is_accepted && !past.was_over;
    if is_first && protocol.scope.app == App::OneAfterAnother {
        let waits = |earlier: &u8| {
            let row = before.row(*earlier);
            protocol.scope.share_key(*earlier, claim.row) && !row.past.is_accepted && !row.past.was_over
        };
        if (0..claim.row).any(|earlier| waits(&earlier)) {
            return Some(KEYS_ARE_IN_ORDER);
        }
    }
    None
}

fn broken_rows(before: &State, after: &State) -> Option<&'static str> {
    for (old, new) in before.rows.iter().zip(&after.rows) {
        if old.status == Status::Sent && new.status != Status::Sent {
            return Some(SENT_IS_FINAL);
        }
        if new.status == Status::Sent && !new.past.is_accepted {
            return Some(SENT_WAS_ACCEPTED);
        }
        if (new.status == Status::Queued) != new.work.is_some() {
            return Some(QUEUED_HAS_WORK);
        }
        if new.epoch < old.epoch || new.work.is_some_and(|work| work.epoch < old.past.epoch_max) {
            return Some(EPOCHS_RISE);
        }
    }
    None
}

/// An admission is lost to a row of the same key that has the turn, or because the head it read has moved on.
fn explains_loss(protocol: &Protocol, before: &State, by: usize, row: u8) -> bool {
    let read = before.processes[by].admission.map(|(_, seq)| seq);
    let is_there =
        Some(before.row(row).seq) == read && before.work(row).is_some_and(|work| work.state == WorkState::Blocked);
    let has_turn = |other: u8| before.work(other).is_some_and(|work| work.has_turn);
    !is_there || protocol.ids().any(|other| protocol.scope.share_key(row, other) && has_turn(other))
}

fn broken_keys(protocol: &Protocol, after: &State) -> Option<&'static str> {
    let is_live = |row: u8| after.work(row).is_some_and(|work| work.state != WorkState::Blocked);
    let shared = |row: u8| protocol.ids().filter(move |other| protocol.scope.share_key(row, *other));
    let is_broken = protocol.ids().any(|row| shared(row).filter(|other| is_live(*other)).count() > 1);
    is_broken.then_some(ONE_LIVE_ROW_PER_KEY)
}
