//! A wall clock that is wrong, for one process: a small library to be preloaded, compiled once a run by the C compiler
//! that the build needs anyway.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// What a process that is to have the wrong time must preload.
pub fn library() -> &'static str {
    static LIBRARY: OnceLock<String> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/support/clock.c");
        let library = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("clock.so");
        let compiled = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).status();
        assert!(compiled.expect("cc runs (scripts/setup)").success(), "the clock compiles");
        library.display().to_string()
    })
}
