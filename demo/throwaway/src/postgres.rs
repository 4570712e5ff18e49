//! A throwaway Postgres.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use tokio_postgres::{Client, NoTls};

use super::leash::{Leash, User};
use super::{LOOK_AGAIN, START_TIMEOUT, find_program, free_port};

/// Where Debian and its kin keep the server's programs, one directory per version.
const DEBIAN_DIR: &str = "/usr/lib/postgresql";
const MISSING: &str = "Postgres is not installed: there is no initdb under /usr/lib/postgresql/*/bin or on PATH. \
    Install it (Debian, Ubuntu: apt-get install postgresql), or run scripts/setup, which does";
/// Who runs the server when we are root, which Postgres refuses: the first of these that exists.
const SERVER_USERS: [&str; 2] = ["postgres", "nobody"];

/// A Postgres of our own; gone when dropped, its directory too.
#[derive(Debug)]
pub struct Postgres {
    leash: Leash,
    port: u16,
    bin: PathBuf,
    settings: String,
    pid: u32,
}

impl Postgres {
    /// Creates a cluster and starts it. `settings` are lines of `postgresql.conf` on top of the server's defaults.
    pub async fn start(settings: &str) -> Result<Postgres> {
        let mut server = Postgres::new(settings)?;
        let (initdb, data) = (server.program("initdb"), server.data());
        let args = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N", "-D", &data];
        server.leash.run(&[&[initdb.as_str()], &args[..]].concat())?;
        server.write_settings("")?;
        server.restart().await?;
        Ok(server)
    }

    /// One that has no data yet; see [`Postgres::copy_from`].
    pub fn new(settings: &str) -> Result<Postgres> {
        let bin = bin_dir().context(MISSING)?;
        let (leash, port) = (Leash::new("postgres", server_user()?)?, free_port()?);
        Ok(Postgres { leash, port, bin, settings: settings.to_owned(), pid: 0 })
    }

    /// Starts it on the data it has, and waits until it answers.
    pub async fn restart(&mut self) -> Result<()> {
        let (program, data) = (self.program("postgres"), self.data());
        let began = Instant::now();
        self.pid = self.leash.start(&[&program, "-D", &data], "QUIT")?;
        while tokio_postgres::connect(&self.url("postgres"), NoTls).await.is_err() {
            if began.elapsed() > START_TIMEOUT {
                bail!("the throwaway Postgres does not answer:\n{}", self.leash.log_tail());
            }
            if !self.leash.is_running() {
                // Sessions of a killed server may hold its memory for a moment.
                self.pid = self.leash.start(&[&program, "-D", &data], "QUIT")?;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        Ok(())
    }

    /// Forgets its data, takes a copy of the server's on `primary_port`, and will follow the one on `follow_port`, both
    /// of 127.0.0.1, once it is started by [`Postgres::restart`]. It must have ended, or never been started. Blocks.
    pub fn copy_from(&mut self, primary_port: u16, follow_port: u16) -> Result<()> {
        let (copy, data, port) = (self.program("pg_basebackup"), self.data(), primary_port.to_string());
        self.leash.run(&["rm", "-rf", &data])?;
        let args = ["-h", "127.0.0.1", "-p", &port, "-U", "postgres", "-X", "stream", "-c", "fast", "-N", "-D", &data];
        self.leash.run(&[&[copy.as_str()], &args[..]].concat())?;
        self.leash.run(&["touch", &format!("{data}/standby.signal")])?;
        self.write_settings(&format!("primary_conninfo = 'host=127.0.0.1 port={follow_port} user=postgres'\n"))
    }

    fn write_settings(&self, more: &str) -> Result<()> {
        let own = format!(
            "listen_addresses = '127.0.0.1'\nport = {}\nunix_socket_directories = '{}'\n\
             log_min_messages = warning\n{}\n{more}",
            self.port,
            self.leash.dir().display(),
            self.settings
        );
        std::fs::write(Path::new(&self.data()).join("postgresql.auto.conf"), own).context("the server's settings")
    }

    fn program(&self, name: &str) -> String {
        self.bin.join(name).display().to_string()
    }

    fn data(&self) -> String {
        self.leash.path("data")
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Sends a signal to the server alone, by its name without SIG: INT stops it fast, QUIT at once.
    pub fn signal(&mut self, name: &str) -> Result<()> {
        self.leash.signal(name)
    }

    /// Waits until it has ended, after a signal.
    pub async fn wait_until_ended(&self) -> Result<()> {
        let began = Instant::now();
        while self.leash.is_running() {
            if began.elapsed() > START_TIMEOUT {
                bail!("the throwaway Postgres does not end:\n{}", self.leash.log_tail());
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        Ok(())
    }

    /// The server and its sessions, as they are now.
    pub fn processes(&self) -> Vec<u32> {
        let parent = |pid: u32| -> Option<u32> {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
        };
        let all = std::fs::read_dir("/proc").into_iter().flatten();
        let all = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        let children = all.filter(|pid| parent(*pid) == Some(self.pid));
        std::iter::once(self.pid).chain(children).collect()
    }

    /// All that it has written to its log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.leash.dir().join("log")).unwrap_or_default()
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

/// The newest version installed, else what PATH has.
fn bin_dir() -> Option<PathBuf> {
    let versions = std::fs::read_dir(DEBIAN_DIR).into_iter().flatten();
    let newest = versions
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok())
        .filter(|version| Path::new(DEBIAN_DIR).join(format!("{version}/bin/initdb")).is_file())
        .max();
    match newest {
        Some(version) => Some(Path::new(DEBIAN_DIR).join(format!("{version}/bin"))),
        None => find_program("initdb")?.parent().map(Path::to_owned),
    }
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
