//! Processes that see something else than there is: small libraries to be preloaded, compiled once a run by the C
//! compiler that the build needs anyway.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// For a process that is to have the wrong time.
pub fn clock() -> &'static str {
    static LIBRARY: OnceLock<String> = OnceLock::new();
    LIBRARY.get_or_init(|| compile("clock"))
}

/// For a process some of whose names have a silent name server.
pub fn names() -> &'static str {
    static LIBRARY: OnceLock<String> = OnceLock::new();
    LIBRARY.get_or_init(|| compile("names"))
}

fn compile(name: &str) -> String {
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/it/support/{name}.c"));
    let library = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.so"));
    let compiled =
        Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).arg("-ldl").status();
    assert!(compiled.expect("cc runs (scripts/setup)").success(), "{name}.c compiles");
    library.display().to_string()
}
