//! One throwaway Postgres per test run, and per test a database cloned from a migrated template.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::sync::OnceCell;
use tokio_postgres::{Client, NoTls};

use super::process::{self, Leashed};

static SERVER: OnceCell<Server> = OnceCell::const_new();
static TEMPLATE: OnceCell<()> = OnceCell::const_new();
static DATABASES: AtomicU32 = AtomicU32::new(0);

/// A Postgres server of our own.
#[derive(Debug)]
pub struct Server {
    pub port: u16,
    pub dir: PathBuf,
    /// After a restart: the server that runs now. It ends before the first one's leash removes the directory.
    pub restarted: Option<Leashed>,
    pub process: Leashed,
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

/// Postgres refuses to run as root: drop to the postgres user.
pub fn as_postgres(program: &Path, args: &[&str]) -> Vec<String> {
    let mut command: Vec<String> = Vec::new();
    if nix::unistd::geteuid().is_root() {
        command.extend(["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups", "--"].map(String::from));
    }
    command.push(program.display().to_string());
    command.extend(args.iter().map(ToString::to_string));
    command
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
    let mut wrapper = vec!["unshare", "--mount"];
    if !nix::unistd::geteuid().is_root() {
        wrapper.extend(["--user", "--map-current-user", "--keep-caps"]);
    }
    wrapper.extend(["sh", "-ec", &mount, "small-disk"]);
    // Vacuum would give back what an aborted statement has filled.
    let server = start_within(&wrapper, &[("autovacuum", "off")]).await;
    let location = server.dir.join("small");
    let admin = connect(&server.url("postgres")).await;
    let create = format!("CREATE TABLESPACE small LOCATION '{}'", location.display());
    admin.batch_execute(&create).await.expect("a tablespace on the small disk");
    server
}

/// Starts a new server by way of `wrapper`, which runs in the server's directory and gives way to the rest of its
/// arguments.
async fn start_within(wrapper: &[&str], settings: &[(&str, &str)]) -> Server {
    let dir = process::scratch_dir("postgres");
    if nix::unistd::geteuid().is_root() {
        let owner = Command::new("chown").arg("postgres:postgres").arg(&dir).status().expect("chown runs");
        assert!(owner.success(), "the postgres user exists");
    }
    let data = dir.join("data");
    let initdb = as_postgres(
        &bin_dir().join("initdb"),
        &["-D", data.to_str().unwrap(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "-N"],
    );
    let output = Command::new(&initdb[0]).args(&initdb[1..]).current_dir(&dir).output().expect("initdb runs");
    assert!(output.status.success(), "initdb: {}", String::from_utf8_lossy(&output.stderr));

    let port = process::free_port();
    let mut conf = format!(
        "listen_addresses = '127.0.0.1'\nport = {port}\nunix_socket_directories = '{}'\n\
         max_connections = 300\nshared_buffers = 128MB\nfsync = off\nsynchronous_commit = on\nfull_page_writes = off\n\
         max_prepared_transactions = 10\nlog_min_messages = warning\n",
        dir.display()
    );
    for (name, value) in settings {
        conf.push_str(&format!("{name} = {value}\n"));
    }
    let conf_file = data.join("postgresql.auto.conf");
    std::fs::write(&conf_file, conf).expect("the server's settings are written");
    let mut command: Vec<String> = Vec::new();
    if !wrapper.is_empty() {
        command.extend(["env", "-C", dir.to_str().unwrap()].map(String::from));
        command.extend(wrapper.iter().map(ToString::to_string));
    }
    command.extend(as_postgres(&bin_dir().join("postgres"), &["-D", data.to_str().unwrap()]));
    let log = dir.join("log");
    let process = process::leash(&command, &log, "QUIT", Some(&dir));
    let server = Server { port, dir, restarted: None, process };
    server.wait_until_ready(&log).await;
    server
}

/// Starts a standby of the primary that is reached through `port`.
pub async fn start_standby(port: u16) -> Server {
    let dir = process::scratch_dir("standby");
    if nix::unistd::geteuid().is_root() {
        let owner = Command::new("chown").arg("postgres:postgres").arg(&dir).status().expect("chown runs");
        assert!(owner.success(), "the postgres user exists");
    }
    let data = dir.join("data");
    let way = format!("host=127.0.0.1 port={port} user=postgres");
    let copy =
        as_postgres(&bin_dir().join("pg_basebackup"), &["-D", data.to_str().unwrap(), "-R", "-c", "fast", "-d", &way]);
    let mut copy_all = Command::new(&copy[0]);
    copy_all.args(&copy[1..]).current_dir(&dir);
    // Beside this thread: the way to the primary may be a proxy of ours.
    let output = tokio::task::spawn_blocking(move || copy_all.output()).await.unwrap().expect("pg_basebackup runs");
    assert!(output.status.success(), "pg_basebackup: {}", String::from_utf8_lossy(&output.stderr));
    let own_port = process::free_port();
    let conf_file = data.join("postgresql.auto.conf");
    let mut conf = std::fs::read_to_string(&conf_file).expect("the primary's settings");
    // The last word counts.
    conf.push_str(&format!("port = {own_port}\nunix_socket_directories = '{}'\n", dir.display()));
    std::fs::write(&conf_file, conf).expect("the standby's settings are written");
    let command = as_postgres(&bin_dir().join("postgres"), &["-D", data.to_str().unwrap()]);
    let log = dir.join("log");
    let process = process::leash(&command, &log, "QUIT", Some(&dir));
    let server = Server { port: own_port, dir, restarted: None, process };
    server.wait_until_ready(&log).await;
    server
}

/// The processes that this one has started.
fn children(pid: i32) -> Vec<i32> {
    let listed = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    listed.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

impl Server {
    async fn wait_until_ready(&self, log: &Path) {
        for _ in 0..600 {
            if tokio_postgres::connect(&self.url("postgres"), NoTls).await.is_ok() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("Postgres does not answer:\n{}", process::log_tail(log));
    }

    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// `pg_ctl stop -m immediate`: no checkpoint, every session cut.
    pub async fn stop_immediately(&mut self) {
        self.restarted.as_ref().unwrap_or(&self.process).signal(Signal::SIGQUIT);
        while tokio::net::TcpStream::connect(("127.0.0.1", self.port)).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // The postmaster may outlive its listener for a moment.
        while self.dir.join("data/postmaster.pid").exists() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Starts it again on the same data and port.
    pub async fn start_again(&mut self) {
        let data = self.dir.join("data");
        let command = as_postgres(&bin_dir().join("postgres"), &["-D", data.to_str().unwrap()]);
        let log = self.dir.join("log");
        self.restarted = Some(process::leash(&command, &log, "QUIT", None));
        self.wait_until_ready(&log).await;
    }

    /// Stops the server and every process of it where they are: the kernel still takes connections and acknowledges.
    pub fn freeze(&mut self) {
        // The postmaster first: it starts no other meanwhile.
        self.process.signal(Signal::SIGSTOP);
        for child in children(self.process.pid()) {
            let _gone = kill(Pid::from_raw(child), Signal::SIGSTOP);
        }
    }

    /// They go on.
    pub fn thaw(&mut self) {
        for child in children(self.process.pid()) {
            let _gone = kill(Pid::from_raw(child), Signal::SIGCONT);
        }
        self.process.signal(Signal::SIGCONT);
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
