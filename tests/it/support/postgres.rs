//! One throwaway Postgres per test run, and per test a database cloned from a migrated template.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::sync::OnceCell;
use tokio_postgres::{Client, NoTls};

use super::process::{self, Leash};

static SERVER: OnceCell<Server> = OnceCell::const_new();
static TEMPLATE: OnceCell<()> = OnceCell::const_new();
static DATABASES: AtomicU32 = AtomicU32::new(0);

/// A Postgres server of our own.
#[derive(Debug)]
pub struct Server {
    pub port: u16,
    leash: Leash,
}

/// A database of our own; it is dropped with the server.
#[derive(Debug, Clone)]
pub struct Database {
    pub port: u16,
    pub name: String,
}

/// Where Debian keeps the server's programs: the newest version installed.
pub fn bin_dir() -> PathBuf {
    if let Ok(dir) = std::env::var("OUTBOXD_TEST_PG_BIN") {
        return dir.into();
    }
    let mut versions: Vec<u32> = std::fs::read_dir("/usr/lib/postgresql")
        .expect("Postgres is installed (scripts/setup)")
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    versions.sort_unstable();
    PathBuf::from(format!("/usr/lib/postgresql/{}/bin", versions.last().expect("a server version")))
}

/// One of the server's programs.
pub fn program(name: &str) -> String {
    bin_dir().join(name).display().to_string()
}

/// Makes a new cluster in a server's directory; where its data is.
pub fn create_cluster(leash: &mut Leash) -> String {
    let data = leash.path("data");
    let options = ["-D", &data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "-N"];
    leash.run(&[&[program("initdb").as_str()], &options[..]].concat()).expect("a new cluster");
    data
}

/// Starts a new server with these settings beside the tests' usual ones.
pub async fn start(settings: &[(&str, &str)]) -> Server {
    start_within(&[], settings).await
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
    let server = start_within(&wrapper, &[("autovacuum", "off")]).await;
    let admin = connect(&server.url("postgres")).await;
    let create = format!("CREATE TABLESPACE small LOCATION '{}'", server.leash.path("small"));
    admin.batch_execute(&create).await.expect("a tablespace on the small disk");
    server
}

/// Starts a new server by way of `wrapper`, which runs in the server's directory and gives way to the rest of its
/// arguments.
async fn start_within(wrapper: &[&str], settings: &[(&str, &str)]) -> Server {
    let mut leash = process::leash_as_postgres("postgres");
    let data = create_cluster(&mut leash);
    let port = process::free_port();
    let mut conf = format!(
        "listen_addresses = '127.0.0.1'\nport = {port}\nunix_socket_directories = '{}'\n\
         max_connections = 300\nshared_buffers = 128MB\nfsync = off\nsynchronous_commit = on\nfull_page_writes = off\n\
         max_prepared_transactions = 10\nlog_min_messages = warning\n",
        leash.dir().display()
    );
    for (name, value) in settings {
        conf.push_str(&format!("{name} = {value}\n"));
    }
    std::fs::write(settings_file(&data), conf).expect("the server's settings are written");
    let mut server = Server { port, leash };
    server.start(wrapper).await;
    server
}

/// Starts a standby of the primary that is reached through `port`.
pub async fn start_standby(port: u16) -> Server {
    let mut leash = process::leash_as_postgres("standby");
    let data = leash.path("data");
    let way = format!("host=127.0.0.1 port={port} user=postgres");
    let copy = ["-D", &data, "-R", "-c", "fast", "-d", &way].map(String::from);
    // Beside this thread: the way to the primary may be a proxy of ours.
    let copying = tokio::task::spawn_blocking(move || {
        let words: Vec<&str> = copy.iter().map(String::as_str).collect();
        leash.run(&[&[program("pg_basebackup").as_str()], &words[..]].concat()).map(|()| leash)
    });
    let leash = copying.await.unwrap().expect("a copy of the primary");
    let own_port = process::free_port();
    let mut conf = std::fs::read_to_string(settings_file(&data)).expect("the primary's settings");
    // The last word counts.
    conf.push_str(&format!("port = {own_port}\nunix_socket_directories = '{}'\n", leash.dir().display()));
    std::fs::write(settings_file(&data), conf).expect("the standby's settings are written");
    let mut server = Server { port: own_port, leash };
    server.start(&[]).await;
    server
}

fn settings_file(data: &str) -> PathBuf {
    Path::new(data).join("postgresql.auto.conf")
}

/// The processes that this one has started.
fn children(pid: i32) -> Vec<i32> {
    let listed = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    listed.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

impl Server {
    /// Starts it on the data it has, by way of `wrapper`, and waits until it answers.
    async fn start(&mut self, wrapper: &[&str]) {
        let (postgres, data) = (program("postgres"), self.leash.path("data"));
        self.leash.start(&[wrapper, &[postgres.as_str(), "-D", &data]].concat(), "QUIT").expect("Postgres starts");
        for _ in 0..600 {
            if tokio_postgres::connect(&self.url("postgres"), NoTls).await.is_ok() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("Postgres does not answer:\n{}", self.leash.log_tail());
    }

    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// `pg_ctl stop -m immediate`: no checkpoint, every session cut.
    pub async fn stop_immediately(&mut self) {
        process::signal(&self.leash, Signal::SIGQUIT);
        while self.leash.is_running() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Starts it again on the same data and port.
    pub async fn start_again(&mut self) {
        self.start(&[]).await;
    }

    /// Stops the server and every process of it where they are: the kernel still takes connections and acknowledges.
    pub fn freeze(&mut self) {
        // The postmaster first: it starts no other meanwhile.
        process::signal(&self.leash, Signal::SIGSTOP);
        for child in children(process::pid(&self.leash)) {
            let _gone = kill(Pid::from_raw(child), Signal::SIGSTOP);
        }
    }

    /// They go on.
    pub fn thaw(&mut self) {
        for child in children(process::pid(&self.leash)) {
            let _gone = kill(Pid::from_raw(child), Signal::SIGCONT);
        }
        process::signal(&self.leash, Signal::SIGCONT);
    }

    /// A standby becomes the primary; a session on it.
    pub async fn promote(&self, database: &str) -> Client {
        let client = connect(&self.url(database)).await;
        let promoted = client.query_one("SELECT pg_promote()", &[]).await.expect("it answers");
        assert!(promoted.get::<_, bool>(0), "it is promoted in time");
        client
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

    pub async fn connect(&self) -> Client {
        connect(&self.url()).await
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
    SERVER.get_or_init(|| start(&[])).await
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
