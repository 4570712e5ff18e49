//! A PgBouncer in front of the shared Postgres.

use outboxd_throwaway::supervisor::Supervisor;

use super::postgres::Database;
use super::{process, wait};

#[derive(Debug)]
pub struct PgBouncer {
    pub port: u16,
    _supervisor: Supervisor,
}

impl PgBouncer {
    /// In transaction mode, with few server connections, so that consecutive transactions of a client land on different
    /// ones.
    pub async fn before(database: &Database) -> PgBouncer {
        PgBouncer::with(database, "pool_mode = transaction\ndefault_pool_size = 4\n").await
    }

    /// With these settings.
    pub async fn with(database: &Database, settings: &str) -> PgBouncer {
        let mut supervisor = process::supervisor_as_postgres("pgbouncer");
        let port = process::free_port();
        let ini = format!(
            "[databases]\n* = host=127.0.0.1 port={} user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             auth_type = any\nmax_client_conn = 200\nunix_socket_dir =\n{settings}",
            database.port
        );
        let file = supervisor.path("pgbouncer.ini");
        std::fs::write(&file, ini).expect("the configuration is written");
        supervisor.start(&["/usr/sbin/pgbouncer", &file], "TERM").expect("PgBouncer starts");
        wait::until_ok("PgBouncer answers", async || {
            let connected = tokio::net::TcpStream::connect(("127.0.0.1", port)).await;
            connected.map_err(|_| supervisor.log_tail())
        })
        .await;
        PgBouncer { port, _supervisor: supervisor }
    }

    /// The database by way of this pooler.
    pub fn url(&self, database: &Database) -> String {
        database.url_at(self.port)
    }
}
