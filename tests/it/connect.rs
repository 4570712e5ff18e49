//! Connections to Postgres, alone and pooled.

use std::time::Duration;

use deadpool_postgres::{Manager, Pool};
use outboxd::store::connect::{Error, Target, connect};
use secrecy::SecretString;

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
