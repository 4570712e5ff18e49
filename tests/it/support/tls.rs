//! Real servers that speak TLS, with certificates of the tests' own.

use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use outboxd_throwaway::postgres::{Postgres, server_user};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::certs::{self, Ca, ServerCert};

/// A Postgres that all tests share.
pub static POSTGRES: LazyLock<TlsServer> = LazyLock::new(|| postgres("on"));

/// A Postgres, its CA and another CA that has nothing to do with it. Its certificate is for `localhost`.
#[derive(Debug)]
pub struct TlsServer {
    pub port: u16,
    pub ca: PathBuf,
    pub other_ca: PathBuf,
    _postgres: Postgres,
}

/// Starts Postgres with `ssl` on or off; anyone may log in, but `guarded` and `reads_audience` only with a password.
pub fn postgres(ssl: &str) -> TlsServer {
    start_postgres(ssl, certificates)
}

/// Starts Postgres with a self-signed certificate, which is then its own CA.
pub fn self_signed_postgres() -> TlsServer {
    start_postgres("on", |dir| {
        let cert = certs::self_signed(dir, "localhost");
        (cert.cert.clone(), Ca::new(dir, "other").file, cert)
    })
}

fn start_postgres(ssl: &str, certificates: fn(&Path) -> (PathBuf, PathBuf, ServerCert)) -> TlsServer {
    let settings = format!(
        "listen_addresses = '127.0.0.1,::1'\nfsync = off\n\
         ssl = {ssl}\nssl_cert_file = '../server.pem'\nssl_key_file = '../server.key'\n"
    );
    let mut postgres = Postgres::new(&settings).unwrap();
    let (ca, other_ca, cert) = certificates(postgres.dir());
    only_postgres_reads(&cert.key);
    postgres.create_cluster().unwrap();
    let hba = postgres.dir().join("data/pg_hba.conf");
    let rules = std::fs::read_to_string(&hba).unwrap();
    std::fs::write(&hba, format!("host all guarded,reads_audience all scram-sha-256\n{rules}")).unwrap();
    // On a thread of its own, as whoever asks may be on a runtime already.
    let starting = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(postgres.restart()).unwrap();
        postgres
    });
    let postgres = starting.join().unwrap();
    TlsServer { port: postgres.port(), ca, other_ca, _postgres: postgres }
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

/// Postgres refuses a key that others can read, and one that it does not own.
fn only_postgres_reads(key: &Path) {
    std::fs::set_permissions(key, std::fs::Permissions::from_mode(0o600)).unwrap();
    if let Some(user) = server_user().unwrap() {
        chown(key, Some(user.uid), Some(user.gid)).unwrap();
    }
}
