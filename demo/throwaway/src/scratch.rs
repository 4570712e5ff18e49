//! A temporary directory for a program under test: what it leaves there, and what still runs in it, can be seen.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Result;

/// Removed when dropped.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Postgres, started by the program as another user, must get through to its own directory.
    pub fn new(name: &str) -> Result<Scratch> {
        let dir = std::env::temp_dir().join(format!("{name}-{:016x}", rand::random::<u64>()));
        std::fs::create_dir(&dir)?;
        std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o777))?;
        Ok(Scratch(dir))
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A command that knows PATH and this directory, and nothing else of our environment.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("TMPDIR", &self.0).stdin(Stdio::null());
        command
    }

    /// The command lines of processes that name the directory.
    pub fn processes(&self) -> Result<Vec<String>> {
        let name = self.0.display().to_string();
        let commands = std::fs::read_dir("/proc")?.filter_map(|entry| {
            let command = std::fs::read(entry.ok()?.path().join("cmdline")).ok()?;
            Some(String::from_utf8_lossy(&command).replace('\0', " "))
        });
        Ok(commands.filter(|command| command.contains(&name)).collect())
    }

    /// What is left: files in the directory, processes that name it.
    pub fn left(&self) -> Result<(usize, Vec<String>)> {
        Ok((std::fs::read_dir(&self.0)?.count(), self.processes()?))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Nothing can be done about what cannot be removed.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
