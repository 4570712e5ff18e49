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
pub(in crate::cli) struct Postgres {
    leash: Leash,
    port: u16,
}

impl Postgres {
    /// Creates a cluster and starts it. `settings` are lines of `postgresql.conf` on top of the server's defaults.
    pub(in crate::cli) async fn start(settings: &str) -> Result<Postgres> {
        let bin = bin_dir().context(MISSING)?;
        let program = |name: &str| bin.join(name).display().to_string();
        let mut leash = Leash::new("postgres", server_user()?)?;
        let (data, port) = (leash.path("data"), free_port()?);
        let initdb = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N", "-D", &data];
        leash.run(&[&[program("initdb").as_str()], &initdb[..]].concat())?;
        let own = format!(
            "listen_addresses = '127.0.0.1'\nport = {port}\nunix_socket_directories = '{}'\n\
             log_min_messages = warning\n{settings}\n",
            leash.dir().display()
        );
        std::fs::write(Path::new(&data).join("postgresql.auto.conf"), own)?;
        leash.start(&[&program("postgres"), "-D", &data], "QUIT")?;
        let server = Postgres { leash, port };
        let began = Instant::now();
        while tokio_postgres::connect(&server.url("postgres"), NoTls).await.is_err() {
            if began.elapsed() > START_TIMEOUT {
                bail!("the throwaway Postgres does not answer:\n{}", server.leash.log_tail());
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        Ok(server)
    }

    /// How the superuser reaches a database of it.
    pub(in crate::cli) fn url(&self, database: &str) -> String {
        self.url_as("postgres", database)
    }

    /// How another login does.
    pub(in crate::cli) fn url_as(&self, user: &str, database: &str) -> String {
        format!("postgres://{user}@127.0.0.1:{}/{database}", self.port)
    }

    /// A new, empty database.
    pub(in crate::cli) async fn create_database(&self, name: &str) -> Result<()> {
        let admin = connect(&self.url("postgres")).await?;
        admin.batch_execute(&format!("CREATE DATABASE {name}")).await?;
        Ok(())
    }
}

/// Connects; the connection is driven until the client is dropped.
pub(in crate::cli) async fn connect(url: &str) -> Result<Client> {
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
fn server_user() -> Result<Option<User>> {
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
