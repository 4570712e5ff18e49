//! A bounded queue of messages (row, epoch). It has no order: whatever a backend may do, this may do too.

/// Messages at most.
const MESSAGES_MAX: usize = 4;
const EPOCHS: u8 = 32;

/// Messages that are not yet acknowledged, copies included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Messages([u8; MESSAGES_MAX]);

impl Messages {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0[0] == 0
    }

    /// Whether there is room for one more.
    pub fn has_room(&self) -> bool {
        self.0[MESSAGES_MAX - 1] == 0
    }

    /// Adds one, if there is room.
    pub fn push(&mut self, row: u8, epoch: u8) {
        if let Some(free) = self.0.last_mut().filter(|code| **code == 0) {
            *free = row * EPOCHS + epoch + 1;
            self.0.sort_unstable_by(|one, other| other.cmp(one));
        }
    }

    /// Removes one copy, if there is one.
    pub fn remove(&mut self, row: u8, epoch: u8) {
        if let Some(found) = self.0.iter_mut().find(|code| **code == row * EPOCHS + epoch + 1) {
            *found = 0;
            self.0.sort_unstable_by(|one, other| other.cmp(one));
        }
    }

    /// Keeps only such messages.
    pub fn retain(&mut self, keep: impl Fn(u8, u8) -> bool) {
        if self.is_empty() {
            return;
        }
        for code in self.0.iter_mut().filter(|code| **code > 0) {
            if !keep((*code - 1) / EPOCHS, (*code - 1) % EPOCHS) {
                *code = 0;
            }
        }
        self.0.sort_unstable_by(|one, other| other.cmp(one));
    }

    /// The messages as (row, epoch), each once.
    pub fn distinct(&self) -> impl Iterator<Item = (u8, u8)> + '_ {
        let codes = self.0.iter().enumerate().filter(|(n, code)| **code > 0 && (*n == 0 || self.0[n - 1] != **code));
        codes.map(|(_, code)| ((code - 1) / EPOCHS, (code - 1) % EPOCHS))
    }

    /// Whether there is such a message.
    pub fn contain(&self, row: u8, epoch: u8) -> bool {
        self.distinct().any(|message| message == (row, epoch))
    }
}
