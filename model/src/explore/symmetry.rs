//! Two states that differ only in which process is called A, or in the numbers of instances, have one future.
//!
//! Only the fingerprint forgets the names: a trace keeps those that it began with.

use super::fingerprint::fingerprint;
use crate::state::{NOBODY, State};

/// The state with its processes in one order and its instances numbered from 0.
pub(super) fn without_names(state: &State) -> State {
    let mut renamed = *state;
    let content = |by: usize| {
        let mut process = state.processes[by];
        (process.number, process.dealt_with) = (0, 0);
        let pushes = state.pushes.iter().flatten().filter(|push| push.number == state.processes[by].number);
        (
            fingerprint(&process),
            pushes.count(),
            state.rows.map(|row| row.work.map(|work| work.instance == state.processes[by].number)),
        )
    };
    if content(0) > content(1) {
        renamed.processes.swap(0, 1);
    }
    let mut names = Names::default();
    for process in &mut renamed.processes {
        process.number = names.of(process.number);
    }
    for work in renamed.rows.iter_mut().filter_map(|row| row.work.as_mut()) {
        work.instance = names.of(work.instance);
    }
    for push in renamed.pushes.iter_mut().flatten() {
        push.number = names.of(push.number);
    }
    renamed.pushes.sort_unstable_by(|one, other| other.cmp(one));
    renamed.memory_numbers = names.of_all(renamed.memory_numbers);
    for process in &mut renamed.processes {
        process.dealt_with = names.of_all(process.dealt_with);
    }
    renamed.next_number = 0;
    renamed
}

/// Numbers in the order in which they are met.
#[derive(Default)]
struct Names {
    met: [u8; 8],
    count: u8,
}

impl Names {
    fn of(&mut self, number: u8) -> u8 {
        if number == NOBODY {
            return NOBODY;
        }
        let known = self.met[..usize::from(self.count)].iter().position(|met| *met == number);
        let known = known.and_then(|place| u8::try_from(place).ok());
        known.unwrap_or_else(|| {
            self.met[usize::from(self.count)] = number;
            self.count += 1;
            self.count - 1
        })
    }

    /// The same for a set of bits; what was not met is of no interest.
    fn of_all(&self, numbers: u8) -> u8 {
        let met = self.met[..usize::from(self.count)].iter().zip(0_u8..);
        met.fold(0, |renamed, (number, name)| renamed | (numbers >> number & 1) << name)
    }
}
