//! One throwaway Postgres per test run, and per test a database cloned from a migrated template.

use std::sync::atomic::{AtomicU32, Ordering};

use nix::sys::signal::Signal;
use outboxd_throwaway::postgres::Postgres;
use tokio::sync::OnceCell;
use tokio_postgres::{Client, NoTls};

/// What all servers of the tests have in common: many sessions, and little care for the disk.
const SETTINGS: &str = "max_connections = 300\nshared_buffers = 128MB\nfsync = off\nsynchronous_commit = on\n\
    full_page_writes = off\nmax_prepared_transactions = 10\n";

static SERVER: OnceCell<Server> = OnceCell::const_new();
static TEMPLATE: OnceCell<()> = OnceCell::const_new();
static DATABASES: AtomicU32 = AtomicU32::new(0);

/// A Postgres server of our own.
#[derive(Debug)]
pub struct Server {
    pub port: u16,
    postgres: Postgres,
}

/// A database of our own; it is dropped with the server.
#[derive(Debug, Clone)]
pub struct Database {
    pub port: u16,
    pub name: String,
}

/// Starts a new server with these lines of `postgresql.conf` beside the tests' usual ones.
pub async fn start(settings: &str) -> Server {
    let mut postgres = Postgres::new(&format!("{SETTINGS}{settings}\n")).expect("a directory for Postgres");
    postgres.create_cluster().expect("a new cluster");
    Server::start(postgres).await
}

/// Starts a new server that has a tablespace `small` on a disk of so many megabytes. The disk is a mount that only the
/// server's own processes see, so it is gone with them; it is filled and emptied through the server.
pub async fn start_with_small_disk(megabytes: u32) -> Server {
    let mount = format!(
        "mkdir small; mount -t tmpfs -o size={megabytes}m tmpfs small; chown --reference=data small; exec \"$@\""
    );
    let unshare = ["unshare", "--mount", "--user", "--map-current-user", "--keep-caps"];
    let wrapper = [&unshare[..], &["sh", "-ec", &mount, "small-disk"]].concat();
    // Vacuum would give back what an aborted statement has filled.
    let postgres = Postgres::new(&format!("{SETTINGS}autovacuum = off\n")).expect("a directory for Postgres");
    let mut postgres = postgres.within(&wrapper);
    postgres.create_cluster().expect("a new cluster");
    let server = Server::start(postgres).await;
    let admin = connect(&server.url("postgres")).await;
    let create = format!("CREATE TABLESPACE small LOCATION '{}/small'", server.postgres.dir().display());
    admin.batch_execute(&create).await.expect("a tablespace on the small disk");
    server
}

/// Starts a standby of the primary that is reached through `port`.
pub async fn start_standby(port: u16) -> Server {
    let mut postgres = Postgres::new(SETTINGS).expect("a directory for Postgres");
    // Beside this thread: the way to the primary may be a proxy of ours.
    let copying = tokio::task::spawn_blocking(move || postgres.copy_from(port, port).map(|()| postgres));
    Server::start(copying.await.unwrap().expect("a copy of the primary")).await
}

impl Server {
    async fn start(mut postgres: Postgres) -> Server {
        postgres.restart().await.expect("Postgres starts");
        Server { port: postgres.port(), postgres }
    }

    pub fn url(&self, database: &str) -> String {
        self.postgres.url(database)
    }

    pub fn url_as(&self, user: &str, database: &str) -> String {
        self.postgres.url_as(user, database)
    }

    /// All that it has written to its log.
    pub fn log(&self) -> String {
        self.postgres.log()
    }

    /// `pg_ctl stop -m immediate`: no checkpoint, every session cut.
    pub async fn stop_immediately(&mut self) {
        self.postgres.signal("QUIT").expect("it runs");
        self.postgres.wait_until_ended().await.expect("it ends");
    }

    /// Starts it again on the same data and port.
    pub async fn start_again(&mut self) {
        self.postgres.restart().await.expect("Postgres starts");
    }

    /// Stops the server and every process of it where they are: the kernel still takes connections and acknowledges.
    pub fn freeze(&mut self) {
        self.postgres.signal_all(Signal::SIGSTOP);
    }

    /// They go on.
    pub fn thaw(&mut self) {
        self.postgres.signal_all(Signal::SIGCONT);
    }

    /// A standby becomes the primary; a session on it.
    pub async fn promote(&self, database: &str) -> Client {
        self.postgres.promote(database).await.expect("it is promoted")
    }

    /// A migrated database on this server.
    pub async fn migrated_database(&self) -> Database {
        self.create_migrated_database("").await
    }

    /// A migrated database of which everything but the WAL is in this tablespace.
    pub async fn migrated_database_in(&self, tablespace: &str) -> Database {
        self.create_migrated_database(&format!("TABLESPACE {tablespace}")).await
    }

    async fn create_migrated_database(&self, options: &str) -> Database {
        let database = self.create_database(options).await;
        let mut client = database.connect().await;
        outboxd::store::migrate::run(&mut client, outboxd::store::migrate::Install::Always).await.expect("it migrates");
        database
    }

    /// An empty database.
    pub async fn empty_database(&self) -> Database {
        self.create_database("").await
    }

    async fn create_database(&self, options: &str) -> Database {
        let name = format!("t{}", DATABASES.fetch_add(1, Ordering::Relaxed));
        let admin = connect(&self.url("postgres")).await;
        admin.batch_execute(&format!("CREATE DATABASE {name} {options}")).await.expect("a database");
        Database { port: self.port, name }
    }
}

impl Database {
    pub fn url(&self) -> String {
        self.url_as("postgres")
    }

    pub fn url_as(&self, user: &str) -> String {
        format!("postgres://{user}@127.0.0.1:{}/{}", self.port, self.name)
    }

    /// By way of a proxy or a pooler at this port.
    pub fn url_at(&self, port: u16) -> String {
        Database { port, name: self.name.clone() }.url()
    }

    pub async fn connect(&self) -> Client {
        connect(&self.url()).await
    }

    /// Connects as a login that has no right in our schema.
    pub async fn connect_as_stranger(&self) -> Client {
        let login = format!("stranger_login_{}", self.name);
        let admin = self.connect().await;
        admin.batch_execute(&format!("CREATE ROLE {login} LOGIN")).await.expect("a login");
        connect(&self.url_as(&login)).await
    }

    /// Connects as a login that holds only `role`.
    pub async fn connect_as_member_of(&self, role: &str) -> Client {
        let login = format!("{role}_login_{}", self.name);
        let admin = self.connect().await;
        admin.batch_execute(&format!("CREATE ROLE {login} LOGIN IN ROLE {role}")).await.expect("a login");
        connect(&self.url_as(&login)).await
    }
}

/// The run's shared server.
pub async fn server() -> &'static Server {
    SERVER.get_or_init(|| start("")).await
}

/// An empty database on the shared server.
pub async fn empty_database() -> Database {
    server().await.empty_database().await
}

/// A migrated database on the shared server, cloned from the template.
pub async fn database() -> Database {
    let server = server().await;
    TEMPLATE
        .get_or_init(|| async {
            let admin = connect(&server.url("postgres")).await;
            admin.batch_execute("CREATE DATABASE migrated").await.expect("the template");
            let mut client = connect(&server.url("migrated")).await;
            outboxd::store::migrate::run(&mut client, outboxd::store::migrate::Install::Always)
                .await
                .expect("it migrates");
            drop(client);
            // Cloning needs a template nobody is connected to.
            let gone = "SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = 'migrated'";
            while !admin.query_one(gone, &[]).await.expect("it answers").get::<_, bool>(0) {
                tokio::task::yield_now().await;
            }
        })
        .await;
    server.create_database("TEMPLATE migrated").await
}

/// Connects and drives the connection in the background.
pub async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("Postgres takes the connection");
    tokio::spawn(connection);
    client
}
