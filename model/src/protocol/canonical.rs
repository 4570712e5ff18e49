//! One form for states with one future: fewer of them, and nothing hidden.
//!
//! A message that a claim would drop, a claim that a sweep would find ended, a head that is admitted already: what is
//! left of each is a step that changes nothing. It is forgotten at once, but only while the guard stands that makes it
//! so: without that guard it is what the checker must find.

use crate::guards::Guards;
use crate::messages::Messages;
use crate::scope::Event;
use crate::state::{Flight, NOBODY, Row, State, Status, WorkState};

/// Keeps the highest epoch that each row has had.
pub(super) fn note_epochs(state: &mut State) {
    for row in &mut state.rows {
        let now = row.epoch.max(row.work.map_or(0, |work| work.epoch));
        row.past.epoch_max = row.past.epoch_max.max(now);
    }
}

/// Forgets what no step and no property can ask for any more, and sorts what has no order.
pub(super) fn canonicalise(state: &mut State, guards: &Guards) {
    for id in 0..state.rows.len() {
        forget_tokens(state, id);
    }
    let claims_once = guards.claim_checks_epoch && guards.claim_raises_epoch && guards.retry_raises_epoch;
    if claims_once && guards.put_back_checks_row {
        forget_stale_messages(state);
        if guards.sweep_checks_token {
            forget_stale_sweeps(state);
        }
    }
    forget_stale_admissions(state);
    forget_numbers(state);
    state.pushes.sort_unstable_by(|one, other| other.cmp(one));
}

/// A token matters while somebody holds it, or while a call under it has no witness.
fn forget_tokens(state: &mut State, id: usize) {
    let holds = |claim: &crate::state::Claim| usize::from(claim.row) == id;
    let claims = state.processes.iter().filter_map(|process| process.claim.filter(holds));
    let held: u32 = claims.fold(0, |tokens, claim| tokens | 1 << claim.token);
    let row = &mut state.rows[id];
    let past = &mut row.past;
    past.backs_off &= row.work.is_some();
    if row.status == Status::Sent {
        past.was_over = false;
        if held == 0 {
            (past.called, past.witnessed) = (0, 0);
        }
    }
    // Tokens below every one that is held: nobody compares with them but for a missing witness.
    let below = if held == 0 { u32::MAX } else { (1 << held.trailing_zeros()) - 1 };
    let done = past.called & past.witnessed & below;
    past.called &= !done;
    past.witnessed &= past.called | held;
}

/// A copy under an old epoch, or of a row that has ended: the claim will drop it.
fn is_stale(row: &Row, epoch: u8) -> bool {
    row.work.is_none_or(|work| work.epoch != epoch)
}

fn forget_stale_messages(state: &mut State) {
    let rows = state.rows;
    let is_stale = |row: u8, epoch: u8| is_stale(&rows[usize::from(row)], epoch);
    let sift = |messages: &mut Messages| messages.retain(|row, epoch| !is_stale(row, epoch));
    sift(&mut state.shared);
    for process in &mut state.processes {
        sift(&mut process.memory);
    }
    // Its push would bring only a stale message, and nobody waits for its confirmation.
    let is_idle = |flight: Flight| matches!(flight, Flight::Reserved | Flight::Adrift);
    for place in &mut state.pushes {
        *place = place.filter(|push| push.is_unconfirmed || !is_idle(push.flight) || !is_stale(push.row, push.epoch));
    }
}

/// A claim that has ended since the sweep read of it: the token will not come back.
fn forget_stale_sweeps(state: &mut State) {
    let rows = state.rows;
    for process in &mut state.processes {
        process.sweep = process.sweep.filter(|found| {
            let work = rows[usize::from(found.row)].work;
            work.is_some_and(|work| work.state == WorkState::Processing && work.epoch == found.token)
        });
    }
}

/// A head that is no longer blocked: its number will not be drawn again.
fn forget_stale_admissions(state: &mut State) {
    let rows = state.rows;
    for process in &mut state.processes {
        process.admission = process.admission.filter(|(row, seq)| {
            let row = &rows[usize::from(*row)];
            row.seq == *seq && row.work.is_some_and(|work| work.state == WorkState::Blocked)
        });
    }
}

/// An instance's number matters while it runs, or while a row or a publication bears it. Who published a row matters
/// only where there are in-process queues.
fn forget_numbers(state: &mut State) {
    if state.memory_numbers == 0 && !state.left.allows(Event::Fallback) {
        for work in state.rows.iter_mut().filter_map(|row| row.work.as_mut()) {
            if work.state == WorkState::Published {
                work.instance = NOBODY;
            }
        }
    }
    let rows = state.rows.iter().filter_map(|row| row.work).map(|work| work.instance);
    let pushes = state.pushes.iter().flatten().map(|push| push.number);
    let current = state.processes.iter().map(|process| process.number);
    let known = rows.chain(pushes).chain(current).filter(|number| *number != NOBODY);
    let known: u8 = known.fold(0, |numbers, number| numbers | 1 << number);
    for process in &mut state.processes {
        process.dealt_with &= known;
    }
}
