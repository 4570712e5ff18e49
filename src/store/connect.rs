//! Making connections: from a database URL to an authenticated, where asked encrypted and verified, session.
//!
//! | sslmode | encrypted | the server's certificate |
//! |---|---|---|
//! | `disable` | never | |
//! | `prefer` (default), `allow` | if the server can | not checked, unless `sslrootcert` is given |
//! | `require` | always | not checked, unless `sslrootcert` is given |
//! | `verify-ca` | always | signed by a CA in `sslrootcert` |
//! | `verify-full` | always | also issued for this host name; `sslrootcert` defaults to the system's CAs |
//!
//! As in libpq, an `sslrootcert` with `prefer` or `require` verifies like `verify-ca`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use secrecy::{ExposeSecret, SecretString};
use tokio_postgres::config::TargetSessionAttrs;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Connection, SimpleQueryMessage, SimpleQueryRow, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::endpoint::{self, Endpoint};
use crate::config::conninfo;
use crate::tls::postgres as tls;

pub(super) mod bounded;

/// The stream of an encrypted connection.
pub type TlsStream = <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream;

/// A server that has not let us in by then is still waited for, but the next one of the URL is tried beside it: a
/// machine whose server is frozen takes connections for as long as it runs.
const NEXT_AFTER: Duration = Duration::from_secs(1);
/// Of several servers the one that takes writes is ours.
const IS_STANDBY: &str = "SELECT pg_catalog.pg_is_in_recovery() AS is_standby";

/// What a connection needs; a pool makes its own with these.
#[derive(Clone)]
pub struct Target {
    /// Host, user, database and the rest.
    pub config: tokio_postgres::Config,
    /// How to encrypt; unused with `sslmode=disable`.
    pub tls: MakeRustlsConnect,
    /// Which of the hosts let us in last: it is tried first.
    preferred: Arc<AtomicUsize>,
}

/// A connection, and what the server answered to its first statements.
pub struct Opened<C = Connection<Socket, TlsStream>> {
    /// For statements.
    pub client: Client,
    /// Moves them; nothing happens unless it is driven.
    pub connection: C,
    /// The rows of the first statements.
    pub rows: Vec<SimpleQueryRow>,
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
    /// The servers that answer take no writes.
    #[error("is a standby, which takes no writes")]
    Standby,
    /// The server answered; encryption or its certificate is not what the URL asks for.
    #[error("{0}")]
    Tls(String),
    /// The server said no.
    #[error("refused the connection: {message} ({code}){}", advice(code))]
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
        Ok(Self { config: info.config, tls: MakeRustlsConnect::new(tls), preferred: Arc::default() })
    }

    /// Makes one connection, with nothing set. The caller drives the [`Connection`]; nothing moves until then.
    pub async fn connect(&self, timeout: Duration) -> Result<(Client, Connection<Socket, TlsStream>), Error> {
        let opened = self.open(timeout, "").await?;
        Ok((opened.client, opened.connection))
    }

    /// Makes one connection and runs `first` on it before anything else: statements of the simple protocol. Each
    /// address has `timeout` for all of that, beginning a second after the one before it. While one is silent, those
    /// that say that they are standbys are asked again.
    pub async fn open(&self, timeout: Duration, first: &str) -> Result<Opened, Error> {
        let connect = |config: tokio_postgres::Config| {
            let tls = self.tls.clone();
            async move { config.connect(tls).await.map_err(|error| classify(&error)) }
        };
        self.open_by(timeout, first, connect).await
    }

    /// The same, where `connect` makes the connection to one address.
    async fn open_by<C, F>(
        &self,
        timeout: Duration,
        first: &str,
        connect: impl Fn(tokio_postgres::Config) -> F,
    ) -> Result<Opened<C>, Error>
    where
        C: Future<Output = Result<(), tokio_postgres::Error>> + Unpin,
        F: Future<Output = Result<(Client, C), Error>>,
    {
        let wants_primary = self.config.get_target_session_attrs() == TargetSessionAttrs::ReadWrite
            || endpoint::hosts(&self.config) > 1;
        let first = if wants_primary { format!("{IS_STANDBY}; {first}") } else { first.to_owned() };
        let attempt = |endpoint: Endpoint| {
            let greeting = tokio::time::timeout(timeout, greet(connect(endpoint.config.clone()), &first));
            async move { (endpoint, greeting.await.unwrap_or_else(|_| Err(silent(timeout)))) }
        };
        let endpoints = tokio::time::timeout(timeout, endpoint::all(&self.config)).await;
        let mut endpoints = endpoints.map_err(|_| silent(timeout))?.map_err(|reason| Error::Unreachable { reason })?;
        endpoint::begin_with(&mut endpoints, self.preferred.load(Ordering::Relaxed));
        let mut waiting = VecDeque::from(endpoints);
        let mut attempts = FuturesUnordered::new();
        let mut failure = None;
        loop {
            if attempts.is_empty() {
                match waiting.pop_front() {
                    Some(next) => attempts.push(attempt(next)),
                    None => return Err(failure.unwrap_or_else(|| silent(timeout))),
                }
            }
            let next_is_due = tokio::time::sleep(NEXT_AFTER);
            tokio::select! {
                Some((endpoint, made)) = attempts.next() => match made {
                    Ok(opened) => {
                        self.preferred.store(endpoint.host, Ordering::Relaxed);
                        return Ok(opened);
                    }
                    Err(error) => {
                        // It may be promoted while another is silent.
                        if matches!(error, Error::Standby) && !attempts.is_empty() {
                            waiting.push_back(endpoint);
                        }
                        // Whoever said most is quoted.
                        failure = Some(failure.filter(Error::says_more).unwrap_or(error));
                    }
                },
                () = next_is_due, if !waiting.is_empty() => {
                    attempts.extend(waiting.pop_front().map(&attempt));
                }
            }
        }
    }
}

/// Runs the first statements on a connection that is being made.
async fn greet<C>(connecting: impl Future<Output = Result<(Client, C), Error>>, first: &str) -> Result<Opened<C>, Error>
where
    C: Future<Output = Result<(), tokio_postgres::Error>> + Unpin,
{
    let (client, mut connection) = connecting.await?;
    let answered = tokio::select! {
        answered = client.simple_query(first), if !first.is_empty() => answered,
        ended = &mut connection, if !first.is_empty() => match ended {
            Err(error) => Err(error),
            Ok(()) => return Err(Error::Unreachable { reason: "the connection was closed".to_owned() }),
        },
        else => Ok(Vec::new()),
    };
    let row = |message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    };
    let rows: Vec<SimpleQueryRow> = answered.map_err(|error| classify(&error))?.into_iter().filter_map(row).collect();
    if rows.iter().any(|row| row.try_get("is_standby").ok().flatten() == Some("t")) {
        return Err(Error::Standby);
    }
    Ok(Opened { client, connection, rows })
}

impl Error {
    /// Whether this tells more than that nobody was there.
    fn says_more(&self) -> bool {
        !matches!(self, Error::Unreachable { .. } | Error::Standby)
    }
}

fn silent(timeout: Duration) -> Error {
    Error::Unreachable { reason: format!("no answer within {}", humantime::format_duration(timeout)) }
}

/// What to do about the refusals that a first start meets.
fn advice(code: &str) -> &'static str {
    match code {
        "28P01" => "; are user and password in database_url right?",
        "28000" => "; may this login connect, from here and in this way? pg_hba.conf says who may",
        "3D000" => "; create it, or name another in database_url",
        _ => "",
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
