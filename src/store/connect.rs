//! Making connections: from a database URL to an authenticated, where asked encrypted and verified, session.
//!
//! | sslmode | encrypted | the server's certificate |
//! |---|---|---|
//! | `disable` | never | |
//! | `prefer` (default), `allow` | if the server can | not looked at, unless `sslrootcert` is given |
//! | `require` | always | not looked at, unless `sslrootcert` is given |
//! | `verify-ca` | always | signed by a CA in `sslrootcert` |
//! | `verify-full` | always | also issued for this host name; `sslrootcert` defaults to the system's CAs |
//!
//! As in libpq, an `sslrootcert` with `prefer` or `require` verifies like `verify-ca`.

use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Connection, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

pub mod conninfo;
mod tls;

/// The stream of an encrypted connection.
pub type TlsStream = <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream;

/// What a connection needs; a pool makes its own with these.
#[derive(Clone)]
pub struct Target {
    /// Host, user, database and the rest.
    pub config: tokio_postgres::Config,
    /// How to encrypt; unused with `sslmode=disable`.
    pub tls: MakeRustlsConnect,
}

/// Why there is no connection. The texts say what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The URL, or a file it names, is wrong: the configuration must change.
    #[error("{0}")]
    Url(String),
    /// Nobody answered in time, or at all.
    #[error("cannot be reached: {reason}; is it running, and are host and port right?")]
    Unreachable {
        /// What the network said.
        reason: String,
    },
    /// The server answered; encryption or its certificate is not what the URL asks for.
    #[error("{0}")]
    Tls(String),
    /// The server said no.
    #[error("refused the connection: {message} ({code})")]
    Refused {
        /// The server's words.
        message: String,
        /// Its SQLSTATE.
        code: String,
    },
}

impl Target {
    /// Understands a URL or a `key=value` string and reads the certificates it names.
    pub fn parse(url: &SecretString) -> Result<Self, Error> {
        let info = conninfo::parse(url.expose_secret()).map_err(Error::Url)?;
        let tls = tls::client_config(info.verify, info.root.as_ref()).map_err(Error::Url)?;
        Ok(Self { config: info.config, tls: MakeRustlsConnect::new(tls) })
    }

    /// Makes one connection. The caller drives the [`Connection`]; nothing moves until then.
    pub async fn connect(&self, timeout: Duration) -> Result<(Client, Connection<Socket, TlsStream>), Error> {
        match tokio::time::timeout(timeout, self.config.connect(self.tls.clone())).await {
            Ok(made) => made.map_err(|error| classify(&error)),
            Err(_) => {
                Err(Error::Unreachable { reason: format!("no answer within {}", humantime::format_duration(timeout)) })
            }
        }
    }
}

/// Makes one connection, for those who need no pool.
pub async fn connect(url: &SecretString, timeout: Duration) -> Result<(Client, Connection<Socket, TlsStream>), Error> {
    Target::parse(url)?.connect(timeout).await
}

/// Sorts a driver's error by what the operator can do about it.
pub fn classify(error: &tokio_postgres::Error) -> Error {
    if let Some(refusal) = error.as_db_error() {
        return Error::Refused { message: refusal.message().to_owned(), code: refusal.code().code().to_owned() };
    }
    let causes: Vec<&(dyn std::error::Error + 'static)> =
        std::iter::successors(Some(error as &(dyn std::error::Error + 'static)), |error| error.source()).collect();
    if let Some(text) = causes.iter().find_map(|cause| tls::explain(*cause)) {
        return Error::Tls(text);
    }
    let reason = causes.last().map_or_else(|| error.to_string(), ToString::to_string);
    if reason.contains("server does not support TLS") {
        return Error::Tls(
            "offers no TLS, but sslmode demands it; switch on ssl in postgresql.conf, or use sslmode=disable on a \
             network you trust"
                .into(),
        );
    }
    // The driver has no variant to match for a URL whose password the server wants and does not find.
    if reason.contains("password missing") {
        return Error::Url("has no password, and the server wants one".into());
    }
    Error::Unreachable { reason }
}
