//! CPU time of this process, the sink's thread apart. Linux only; elsewhere it is not told.

use std::path::Path;
use std::time::Duration;

use outboxd_throwaway::provider;

/// What the kernel counts in, on every Linux we run on.
const TICKS_PER_SECOND: u64 = 100;

/// CPU time used so far by everything but the sink.
pub(super) fn used() -> Option<Duration> {
    let mut ticks = 0;
    for task in std::fs::read_dir("/proc/self/task").ok()? {
        let task = task.ok()?.path();
        if std::fs::read_to_string(task.join("comm")).ok()?.trim() != provider::THREAD {
            ticks += ticks_of(&task)?;
        }
    }
    Some(Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND))
}

/// User and system time: fields 14 and 15, counted after the name, which may hold anything.
fn ticks_of(task: &Path) -> Option<u64> {
    let stat = std::fs::read_to_string(task.join("stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
}
