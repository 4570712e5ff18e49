//! A PgBouncer in front of the shared Postgres.

use std::time::Duration;

use super::postgres::{Database, as_postgres};
use super::process::{self, Leashed};

#[derive(Debug)]
pub struct PgBouncer {
    pub port: u16,
    _process: Leashed,
}

impl PgBouncer {
    /// In transaction mode, with few server connections, so that consecutive transactions of a client land on different
    /// ones.
    pub async fn before(database: &Database) -> PgBouncer {
        PgBouncer::with(database, "pool_mode = transaction\ndefault_pool_size = 4\n").await
    }

    /// With these settings.
    pub async fn with(database: &Database, settings: &str) -> PgBouncer {
        let dir = process::scratch_dir("pgbouncer");
        let port = process::free_port();
        let ini = format!(
            "[databases]\n* = host=127.0.0.1 port={} user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             auth_type = any\nmax_client_conn = 200\nunix_socket_dir =\n{settings}",
            database.port
        );
        let file = dir.join("pgbouncer.ini");
        std::fs::write(&file, ini).expect("the configuration is written");
        if nix::unistd::geteuid().is_root() {
            std::process::Command::new("chown").args(["-R", "postgres"]).arg(&dir).status().expect("chown runs");
        }
        let log = dir.join("log");
        let command = as_postgres(std::path::Path::new("/usr/sbin/pgbouncer"), &[file.to_str().unwrap()]);
        let process = process::leash(&command, &log, "TERM", Some(&dir));
        for _ in 0..600 {
            if tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
                return PgBouncer { port, _process: process };
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("PgBouncer does not answer:\n{}", process::log_tail(&log));
    }

    /// The database by way of this pooler.
    pub fn url(&self, database: &Database) -> String {
        database.url().replace(&format!(":{}/", database.port), &format!(":{}/", self.port))
    }
}
