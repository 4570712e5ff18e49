//! Connections to Postgres, alone and pooled.

use std::time::Duration;

use deadpool_postgres::{Manager, Pool};
use outboxd::config::{Sources, load};
use outboxd::store::connect::{Error, Target, connect};
use outboxd::store::{self, Store};
use secrecy::SecretString;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::support::tls::POSTGRES;

const PATIENCE: Duration = Duration::from_secs(20);

fn url(host: &str, rest: &str) -> SecretString {
    format!("postgres://postgres@{host}:{}/postgres?{rest}", POSTGRES.port).into()
}

#[tokio::test]
async fn one_connection_is_made_and_named() {
    let (client, connection) = connect(&url("127.0.0.1", "sslmode=require"), PATIENCE).await.unwrap();
    let driver = tokio::spawn(connection);
    let row = client.query_one("SELECT current_setting('application_name')", &[]).await.unwrap();
    assert_eq!(row.get::<_, String>(0), "outboxd");
    drop(client);
    driver.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_pool_makes_verified_connections_from_a_target() {
    let root = POSTGRES.ca.display();
    let target = Target::parse(&url("localhost", &format!("sslmode=verify-full&sslrootcert={root}"))).unwrap();
    let pool = Pool::builder(Manager::new(target.config, target.tls)).max_size(2).build().unwrap();
    let row = pool.get().await.unwrap();
    let row = row.query_one("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()", &[]).await.unwrap();
    assert!(row.get::<_, bool>(0));
}

#[tokio::test]
async fn a_server_that_accepts_and_says_nothing_is_given_up() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("postgres://postgres@{}/postgres", silent.local_addr().unwrap()).into();
    let error = connect(&url, Duration::from_millis(100)).await.map(|_| ()).unwrap_err();
    assert!(matches!(&error, Error::Unreachable { reason } if reason == "no answer within 100ms"), "{error}");
}

/// Postgres up to "ready for query", and then silence.
async fn let_everybody_in_and_say_nothing_more(listener: TcpListener) {
    let mut held = Vec::new();
    while let Ok((mut session, _)) = listener.accept().await {
        let _startup = session.read(&mut [0; 1_024]).await.unwrap();
        session.write_all(b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I").await.unwrap();
        held.push(session);
    }
}

#[tokio::test]
async fn a_server_that_lets_us_in_and_then_says_nothing_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("postgres://postgres@{}/postgres?sslmode=disable", listener.local_addr().unwrap());
    let silent = tokio::spawn(let_everybody_in_and_say_nothing_more(listener));
    let overrides = [("database_url", url.as_str()), ("database.connect_timeout", "200ms")];
    let overrides = overrides.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec();
    let store = Store::open(&load(&Sources { overrides, ..Sources::default() }).unwrap().config).unwrap();
    for _ in 0..20 {
        let answer = tokio::time::timeout(PATIENCE, store.ping()).await.expect("bounded, also the wait for the pool");
        assert!(matches!(answer, Err(store::Error::Unavailable(_))), "{answer:?}");
    }
    silent.abort();
}
