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
use super::postgres::{create_cluster, program};
use super::process::{Leash, free_port, leash, leash_as_postgres};

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
    _leash: Leash,
}

/// Starts Postgres with `ssl` on or off; anyone may log in, but `guarded` only with a password.
pub fn postgres(ssl: &str) -> TlsServer {
    let leash = leash_as_postgres("tls-postgres");
    let certificates = certificates(leash.dir());
    postgres_on(leash, ssl, certificates)
}

/// Starts Postgres with a self-signed certificate, which is then its own CA.
pub fn self_signed_postgres() -> TlsServer {
    let leash = leash_as_postgres("tls-postgres");
    let cert = certs::self_signed(leash.dir(), "localhost");
    let certificates = (cert.cert.clone(), Ca::new(leash.dir(), "other").file, cert);
    postgres_on(leash, "on", certificates)
}

fn postgres_on(mut leash: Leash, ssl: &str, (ca, other_ca, cert): (PathBuf, PathBuf, ServerCert)) -> TlsServer {
    only_owner_reads(&cert.key);
    give_to_postgres(leash.dir());
    let data = create_cluster(&mut leash);
    let hba = Path::new(&data).join("pg_hba.conf");
    let rules = std::fs::read_to_string(&hba).unwrap();
    std::fs::write(&hba, format!("host all guarded all scram-sha-256\n{rules}")).unwrap();
    let port = free_port();
    let settings = [
        "listen_addresses=127.0.0.1,::1".to_owned(),
        format!("port={port}"),
        format!("unix_socket_directories={}", leash.dir().display()),
        format!("ssl={ssl}"),
        format!("ssl_cert_file={}", cert.cert.display()),
        format!("ssl_key_file={}", cert.key.display()),
        "fsync=off".to_owned(),
    ];
    let postgres = program("postgres");
    let mut command = vec![postgres.as_str(), "-D", &data];
    command.extend(settings.iter().flat_map(|setting| ["-c", setting]));
    leash.start(&command, "QUIT").unwrap();
    wait_until(&leash, || leash.log_tail().contains("ready to accept connections"));
    TlsServer { port, ca, other_ca, _leash: leash }
}

/// Starts Redis, which speaks nothing but TLS.
pub fn redis(policy: &str) -> TlsServer {
    let mut leash = leash("tls-redis");
    let (ca, other_ca, cert) = certificates(leash.dir());
    let port = free_port();
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let settings = [
        ("--port", "0".to_owned()),
        ("--bind", "127.0.0.1".to_owned()),
        ("--tls-port", port.to_string()),
        ("--tls-cert-file", text(&cert.cert)),
        ("--tls-key-file", text(&cert.key)),
        ("--tls-ca-cert-file", text(&ca)),
        ("--tls-auth-clients", "no".to_owned()),
        ("--maxmemory-policy", policy.to_owned()),
        ("--save", String::new()),
        ("--dir", text(leash.dir())),
    ];
    let settings = settings.iter().flat_map(|(name, value)| [*name, value]);
    leash.start(&std::iter::once("redis-server").chain(settings).collect::<Vec<_>>(), "TERM").unwrap();
    wait_until(&leash, || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    TlsServer { port, ca, other_ca, _leash: leash }
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

fn wait_until(leash: &Leash, ready: impl Fn() -> bool) {
    let start = Instant::now();
    while !ready() {
        assert!(start.elapsed() < PATIENCE, "no answer; its log says:\n{}", leash.log_tail());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// And one that it does not own.
fn give_to_postgres(dir: &Path) {
    if nix::unistd::geteuid().is_root() {
        let status = Command::new("chown").args(["-R", "postgres:postgres"]).arg(dir).status().unwrap();
        assert!(status.success(), "chown");
    }
}
