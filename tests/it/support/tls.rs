//! Real servers that speak TLS, with certificates of the tests' own.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::certs::{self, Ca, ServerCert};
use super::process::{Leashed, free_port, leash, log_tail, scratch_dir};

/// A Postgres that all tests share.
pub static POSTGRES: LazyLock<TlsServer> = LazyLock::new(|| postgres("on"));

/// How long a server may take to answer on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server on a leash, its CA and another CA that has nothing to do with it. Its certificate is for `localhost`.
#[derive(Debug)]
pub struct TlsServer {
    pub port: u16,
    pub ca: PathBuf,
    pub other_ca: PathBuf,
    _process: Leashed,
}

/// Starts Postgres with `ssl` on or off; anyone may log in, but `guarded` only with a password.
pub fn postgres(ssl: &str) -> TlsServer {
    let dir = scratch_dir("tls-postgres");
    let certificates = certificates(&dir);
    postgres_in(&dir, ssl, certificates)
}

/// Starts Postgres with a self-signed certificate, which is then its own CA.
pub fn self_signed_postgres() -> TlsServer {
    let dir = scratch_dir("tls-postgres");
    let cert = certs::self_signed(&dir, "localhost");
    let certificates = (cert.cert.clone(), Ca::new(&dir, "other").file, cert);
    postgres_in(&dir, "on", certificates)
}

fn postgres_in(dir: &Path, ssl: &str, (ca, other_ca, cert): (PathBuf, PathBuf, ServerCert)) -> TlsServer {
    let bin = postgres_bin();
    only_owner_reads(&cert.key);
    give_to_postgres(dir);
    let data = dir.join("data");
    let data_text = data.to_str().unwrap();
    let initdb = as_postgres(&bin.join("initdb"), &["-D", data_text, "-U", "postgres", "-A", "trust", "-N"]);
    let made = Command::new(&initdb[0]).args(&initdb[1..]).current_dir(dir).output().unwrap();
    assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
    let hba = data.join("pg_hba.conf");
    let rules = std::fs::read_to_string(&hba).unwrap();
    std::fs::write(&hba, format!("host all guarded all scram-sha-256\n{rules}")).unwrap();
    let port = free_port();
    let settings = [
        "listen_addresses=127.0.0.1,::1".to_owned(),
        format!("port={port}"),
        format!("unix_socket_directories={}", dir.display()),
        format!("ssl={ssl}"),
        format!("ssl_cert_file={}", cert.cert.display()),
        format!("ssl_key_file={}", cert.key.display()),
        "fsync=off".to_owned(),
    ];
    let mut args = vec!["-D", data_text];
    args.extend(settings.iter().flat_map(|setting| ["-c", setting]));
    let log = dir.join("log");
    let process = leash(&as_postgres(&bin.join("postgres"), &args), &log, "QUIT", Some(dir));
    let port_text = port.to_string();
    let probe = ["-q", "-h", "127.0.0.1", "-p", &port_text];
    wait_until(&log, || Command::new(bin.join("pg_isready")).args(probe).status().unwrap().success());
    TlsServer { port, ca, other_ca, _process: process }
}

/// Starts Redis, which speaks nothing but TLS.
pub fn redis(policy: &str) -> TlsServer {
    let dir = scratch_dir("tls-redis");
    let (ca, other_ca, cert) = certificates(&dir);
    let port = free_port();
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let command: Vec<String> = [
        ("--port", "0".to_owned()),
        ("--bind", "127.0.0.1".to_owned()),
        ("--tls-port", port.to_string()),
        ("--tls-cert-file", text(&cert.cert)),
        ("--tls-key-file", text(&cert.key)),
        ("--tls-ca-cert-file", text(&ca)),
        ("--tls-auth-clients", "no".to_owned()),
        ("--maxmemory-policy", policy.to_owned()),
        ("--save", String::new()),
        ("--dir", text(&dir)),
    ]
    .into_iter()
    .flat_map(|(name, value)| [name.to_owned(), value])
    .collect();
    let command: Vec<String> = std::iter::once("redis-server".to_owned()).chain(command).collect();
    let log = dir.join("log");
    let process = leash(&command, &log, "TERM", Some(&dir));
    wait_until(&log, || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    TlsServer { port, ca, other_ca, _process: process }
}

/// Speaks TLS as `localhost` and passes on to a server that does not.
#[derive(Debug)]
pub struct Front {
    pub port: u16,
    pub ca: PathBuf,
    _dir: tempfile::TempDir,
    _stop: DropGuard,
}

/// Starts one before `server`, on the caller's runtime.
pub async fn front(server: SocketAddr) -> Front {
    let dir = tempfile::tempdir().unwrap();
    let (ca, _, cert) = certificates(dir.path());
    let chain = CertificateDer::pem_file_iter(&cert.cert).unwrap().collect::<Result<_, _>>().unwrap();
    let config = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, PrivateKeyDer::from_pem_file(&cert.key).unwrap())
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let stop = CancellationToken::new();
    let serving = async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                // A client that does not trust us hangs up: it is the test's business, not ours.
                let Ok(mut secure) = acceptor.accept(stream).await else { return };
                let mut plain = TcpStream::connect(server).await.expect("the server behind answers");
                let _either_side_ended = copy_bidirectional(&mut secure, &mut plain).await;
            });
        }
    };
    tokio::spawn(stop.clone().run_until_cancelled_owned(serving));
    Front { port, ca, _dir: dir, _stop: stop.drop_guard() }
}

fn certificates(dir: &Path) -> (PathBuf, PathBuf, ServerCert) {
    let ca = Ca::new(dir, "ca");
    let cert = ca.server(dir, &["localhost"]);
    (ca.file, Ca::new(dir, "other").file, cert)
}

/// Postgres refuses a key that others can read.
fn only_owner_reads(key: &Path) {
    std::fs::set_permissions(key, std::fs::Permissions::from_mode(0o600)).unwrap();
}

fn wait_until(log: &Path, ready: impl Fn() -> bool) {
    let start = Instant::now();
    while !ready() {
        assert!(start.elapsed() < PATIENCE, "no answer; its log says:\n{}", log_tail(log));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Where the newest installed server's programs are.
fn postgres_bin() -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").expect("Postgres is installed");
    let newest = versions.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok()).max();
    PathBuf::from(format!("/usr/lib/postgresql/{}/bin", newest.expect("a version of Postgres")))
}

/// Postgres refuses to run as root.
fn as_postgres(program: &Path, args: &[&str]) -> Vec<String> {
    let mut command = Vec::new();
    if nix::unistd::geteuid().is_root() {
        command.extend(["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups", "--"].map(str::to_owned));
    }
    command.push(program.to_str().unwrap().to_owned());
    command.extend(args.iter().map(|arg| (*arg).to_owned()));
    command
}

fn give_to_postgres(dir: &Path) {
    if nix::unistd::geteuid().is_root() {
        let status = Command::new("chown").args(["-R", "postgres:postgres"]).arg(dir).status().unwrap();
        assert!(status.success(), "chown");
    }
}
