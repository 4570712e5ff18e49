//! A terminal of some size, and what a command writes on it.

use std::fs::File;
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use nix::pty::{Winsize, openpty};

/// Longer than any command takes to say its first word, or to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// All that a command writes on a terminal with so many columns and rows, to stdout and stderr; up to this text, or until
/// it ends. It has nothing else in its environment but `env`.
pub fn written(args: &[&str], env: &[(&str, &str)], (columns, rows): (u16, u16), until: Option<&str>) -> String {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    let terminal = openpty(&size, None).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_outboxd"));
    command.args(args).env_clear().envs(env.iter().copied()).stdin(Stdio::null());
    command.stdout(terminal.slave.try_clone().unwrap()).stderr(terminal.slave);
    let mut child = command.spawn().unwrap();
    // It holds the other end of the terminal too.
    drop(command);
    let mut master = File::from(terminal.master);
    let (tell, heard) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        // An error once the other end is closed.
        while let Ok(length @ 1..) = master.read(&mut buffer) {
            if tell.send(buffer[..length].to_vec()).is_err() {
                return;
            }
        }
    });
    let (mut bytes, deadline) = (Vec::new(), Instant::now() + PATIENCE);
    while !until.is_some_and(|until| String::from_utf8_lossy(&bytes).contains(until)) {
        match heard.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(more) => bytes.extend(more),
            Err(mpsc::RecvTimeoutError::Disconnected) if until.is_none() => break,
            Err(error) => panic!("{args:?}: {error}: {}", String::from_utf8_lossy(&bytes)),
        }
    }
    // One that has ended is gone already.
    let _ = child.kill();
    child.wait().unwrap();
    drop(heard);
    reader.join().unwrap();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    // What came with the same read may end anywhere.
    match until.and_then(|until| Some(text.find(until)? + until.len())) {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}
