//! A throwaway Postgres.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio_postgres::{Client, NoTls};

use super::supervisor::{Supervisor, User};
use super::{POLL_INTERVAL, START_TIMEOUT, find_program, free_port, until};

/// Where Debian and its kin keep the server's programs, one directory per version.
const DEBIAN_DIR: &str = "/usr/lib/postgresql";
const MISSING: &str = "Postgres is not installed: there is no initdb under /usr/lib/postgresql/*/bin or on PATH. \
    Install it (Debian, Ubuntu: apt-get install postgresql), or run scripts/setup, which does";
/// Who runs the server when we are root, which Postgres refuses: the first of these that exists.
const SERVER_USERS: [&str; 2] = ["postgres", "nobody"];

/// A Postgres of our own; gone when dropped, its directory too.
#[derive(Debug)]
pub struct Postgres {
    supervisor: Supervisor,
    port: u16,
    settings: String,
    wrapper: Vec<String>,
}

impl Postgres {
    /// Creates a cluster and starts it. `settings` are lines of `postgresql.conf` on top of the server's defaults.
    pub async fn start(settings: &str) -> Result<Postgres> {
        let mut server = Postgres::new(settings)?;
        server.create_cluster()?;
        server.restart().await?;
        Ok(server)
    }

    /// One that has no data yet: it gets some by [`Postgres::create_cluster`] or [`Postgres::copy_from`], and is started
    /// by [`Postgres::restart`].
    pub fn new(settings: &str) -> Result<Postgres> {
        let (supervisor, port) = (Supervisor::new("postgres", server_user()?)?, free_port()?);
        Ok(Postgres { supervisor, port, settings: settings.to_owned(), wrapper: Vec::new() })
    }

    /// Will be started by way of this command, which runs in the server's directory and gives way to its last arguments.
    pub fn within(mut self, wrapper: &[&str]) -> Postgres {
        self.wrapper = wrapper.iter().map(ToString::to_string).collect();
        self
    }

    /// Gives it empty data. Blocks.
    pub fn create_cluster(&mut self) -> Result<()> {
        let (initdb, data) = (program("initdb")?, self.data());
        let args = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "-N", "-D", &data];
        self.supervisor.run(&[&[initdb.as_str()], &args[..]].concat())?;
        self.write_settings("")
    }

    /// Starts it on the data it has, and waits until it answers.
    pub async fn restart(&mut self) -> Result<()> {
        let began = Instant::now();
        self.launch()?;
        while tokio_postgres::connect(&self.url("postgres"), NoTls).await.is_err() {
            if began.elapsed() > START_TIMEOUT {
                bail!("the throwaway Postgres does not answer:\n{}", self.supervisor.log_tail());
            }
            if !self.supervisor.is_running() {
                // Sessions of a killed server may hold its memory for a moment.
                self.launch()?;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    fn launch(&mut self) -> Result<()> {
        let (server, data) = (program("postgres")?, self.data());
        let wrapper = self.wrapper.iter().map(String::as_str);
        let command: Vec<&str> = wrapper.chain([server.as_str(), "-D", &data]).collect();
        self.supervisor.start(&command, "QUIT").map(|_| ())
    }

    /// Forgets its data, takes a copy of the server's on `primary_port`, and will follow the one on `follow_port`, both
    /// of 127.0.0.1, once it is started by [`Postgres::restart`]. It must have ended, or never been started. Blocks.
    pub fn copy_from(&mut self, primary_port: u16, follow_port: u16) -> Result<()> {
        let (copy, data, port) = (program("pg_basebackup")?, self.data(), primary_port.to_string());
        self.supervisor.run(&["rm", "-rf", &data])?;
        let args = ["-h", "127.0.0.1", "-p", &port, "-U", "postgres", "-X", "stream", "-c", "fast", "-N", "-D", &data];
        self.supervisor.run(&[&[copy.as_str()], &args[..]].concat())?;
        self.supervisor.run(&["touch", &format!("{data}/standby.signal")])?;
        self.write_settings(&format!("primary_conninfo = 'host=127.0.0.1 port={follow_port} user=postgres'\n"))
    }

    fn write_settings(&self, more: &str) -> Result<()> {
        let own = format!(
            "listen_addresses = '127.0.0.1'\nport = {}\nunix_socket_directories = '{}'\n\
             log_min_messages = warning\n{}\n{more}",
            self.port,
            self.dir().display(),
            self.settings
        );
        std::fs::write(Path::new(&self.data()).join("postgresql.auto.conf"), own).context("the server's settings")
    }

    /// The directory that its data directory, `data`, is in.
    pub fn dir(&self) -> &Path {
        self.supervisor.dir()
    }

    fn data(&self) -> String {
        self.supervisor.path("data")
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Sends a signal to the server alone, by its name without SIG: INT stops it fast, QUIT at once.
    pub fn signal(&mut self, name: &str) -> Result<()> {
        self.supervisor.signal(name)
    }

    /// Waits until it has ended, after a signal.
    pub async fn wait_until_ended(&self) -> Result<()> {
        let ended = until("Postgres ends", START_TIMEOUT, || async { Ok(!self.supervisor.is_running()) }).await;
        ended.with_context(|| self.supervisor.log_tail())
    }

    /// Signals the server and its sessions, as they are now: SIGSTOP freezes them where they are, while the kernel still
    /// takes connections and acknowledges.
    pub fn signal_all(&self, signal: Signal) {
        let Some(server) = self.supervisor.pid() else { return };
        // A session that has just ended needs no signal.
        let signal = |pid: &str| drop(pid.parse().map(|pid| kill(Pid::from_raw(pid), signal)));
        // The server first: it starts no other session meanwhile.
        signal(&server.to_string());
        let sessions = std::fs::read_to_string(format!("/proc/{server}/task/{server}/children")).unwrap_or_default();
        sessions.split_whitespace().for_each(signal);
    }

    /// A standby becomes the primary; a session on it.
    pub async fn promote(&self, database: &str) -> Result<Client> {
        let client = connect(&self.url(database)).await?;
        let is_promoted: bool = client.query_one("SELECT pg_promote()", &[]).await?.get(0);
        ensure!(is_promoted, "the standby is not promoted in time");
        Ok(client)
    }

    /// All that it has written to its log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir().join("log")).unwrap_or_default()
    }

    /// How the superuser reaches a database of it.
    pub fn url(&self, database: &str) -> String {
        self.url_as("postgres", database)
    }

    /// How another login does.
    pub fn url_as(&self, user: &str, database: &str) -> String {
        format!("postgres://{user}@127.0.0.1:{}/{database}", self.port)
    }

    /// A new, empty database.
    pub async fn create_database(&self, name: &str) -> Result<()> {
        let admin = connect(&self.url("postgres")).await?;
        admin.batch_execute(&format!("CREATE DATABASE {name}")).await?;
        Ok(())
    }
}

/// Connects; the connection is driven until the client is dropped.
pub async fn connect(url: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.context("the throwaway Postgres is gone")?;
    tokio::spawn(connection);
    Ok(client)
}

/// One of the server's programs: of the version in the directory `OUTBOXD_TEST_PG_BIN`, else of the newest one installed,
/// else what PATH has.
pub fn program(name: &str) -> Result<String> {
    let versions = std::fs::read_dir(DEBIAN_DIR).into_iter().flatten();
    let newest = versions
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok())
        .filter(|version| Path::new(DEBIAN_DIR).join(format!("{version}/bin/initdb")).is_file())
        .max();
    let dir = match (std::env::var_os("OUTBOXD_TEST_PG_BIN"), newest) {
        (Some(dir), _) => PathBuf::from(dir),
        (None, Some(version)) => Path::new(DEBIAN_DIR).join(format!("{version}/bin")),
        (None, None) => {
            find_program("initdb").and_then(|program| Some(program.parent()?.to_owned())).context(MISSING)?
        }
    };
    Ok(dir.join(name).display().to_string())
}

/// Whom to run the server as, unless as ourselves.
pub fn server_user() -> Result<Option<User>> {
    if id(&["-u"]) != Some(0) {
        return Ok(None);
    }
    let found = SERVER_USERS.iter().find_map(|name| Some(User { uid: id(&["-u", name])?, gid: id(&["-g", name])? }));
    let user = found.context(
        "Postgres refuses to run as root, and there is no user postgres or nobody to run it as; call this as an \
         ordinary user",
    )?;
    Ok(Some(user))
}

fn id(args: &[&str]) -> Option<u32> {
    let output = Command::new("id").args(args).output().ok()?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}
