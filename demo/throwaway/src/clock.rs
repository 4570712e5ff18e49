//! A wall clock that is wrong, for one process: a small library to be preloaded, compiled once by the C compiler that the
//! build needs anyway. `clock.c` says what it reads.

use std::process::Command;
use std::sync::OnceLock;

use super::supervisor::Supervisor;

/// What a process that is to have the wrong time must preload.
pub fn library() -> &'static str {
    static LIBRARY: OnceLock<(String, Supervisor)> = OnceLock::new();
    let (library, _) = LIBRARY.get_or_init(|| {
        let supervisor = Supervisor::new("clock", None).expect("a directory for the clock");
        let (source, library) = (supervisor.path("clock.c"), supervisor.path("clock.so"));
        std::fs::write(&source, include_str!("clock.c")).expect("the clock is written");
        let compiled = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o", &library, &source]).status();
        assert!(compiled.expect("cc runs: scripts/setup installs it").success(), "the clock compiles");
        (library, supervisor)
    });
    library
}
