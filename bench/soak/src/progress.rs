//! One line that is written anew on a terminal; elsewhere a line every few seconds.

use std::io::{IsTerminal, Write as _};
use std::time::{Duration, Instant};

use super::evidence::{Asked, Outcome, Write};
use super::world::World;

const LINE_EVERY: Duration = Duration::from_secs(5);

/// Where progress is shown.
#[derive(Debug)]
pub(super) struct Progress {
    is_terminal: bool,
    line_at: Option<Instant>,
}

impl Progress {
    /// Looks at where stdout leads.
    pub(super) fn new() -> Progress {
        Progress { is_terminal: std::io::stdout().is_terminal(), line_at: None }
    }

    /// How it stands, if it is time to say so.
    pub(super) fn show(&mut self, world: &World, faults: usize) {
        if !self.is_terminal && self.line_at.is_some_and(|at| at.elapsed() < LINE_EVERY) {
            return;
        }
        self.line_at = Some(Instant::now());
        let (committed, begun, now) = {
            let log = world.log();
            let is_due = |write: &&Write| write.outcome == Outcome::Committed && write.asked != Asked::Event;
            let committed = log.writes.iter().filter(is_due).count();
            let open = log.happened.iter().filter(|happened| happened.healed.is_none());
            let now: Vec<String> = open.map(|happened| happened.fault.kind.to_string()).collect();
            (committed, log.happened.len(), now.join(", "))
        };
        let text = format!(
            "{:>6.0} s  committed {committed} · delivered {} · faults {begun}/{faults}{}{now}",
            world.elapsed().as_secs_f64(),
            world.providers.accepted(),
            if now.is_empty() { "" } else { " · now " }
        );
        if self.is_terminal {
            print!("\r\x1b[K{text}");
            // A line that cannot be shown is not worth an end.
            let _ = std::io::stdout().flush();
        } else {
            say(&text);
        }
    }

    /// The line stays; others follow below it.
    pub(super) fn end(&self) {
        if self.is_terminal {
            say("");
        }
    }
}

/// One line on stdout; a reader that has seen enough (`| head`) is no error.
pub(super) fn say(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}
