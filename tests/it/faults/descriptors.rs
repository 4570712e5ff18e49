//! More hosts than the process may have files open: what the process lacks costs no notification an attempt.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::net::TcpStream;
use tokio_postgres::Client;

use crate::support::http;
use crate::support::instance::{Instance, Setup};
use crate::support::postgres;
use crate::support::provider::{Provider, Reply};
use crate::support::sql::Sql;

const SOON: Duration = Duration::from_secs(20);

/// A provider on every address of the loopback network: each is a host of its own.
fn provider_everywhere() -> Provider {
    Provider::start_at("0.0.0.0:0".parse().unwrap()).unwrap()
}

/// One row for each of so many hosts.
async fn notify_hosts(app: &Client, provider: &Provider, hosts: i32) {
    let port = provider.addr().port();
    let notify = format!(
        "SELECT outboxd.notify('orders', format('http://127.%s.%s.%s:{port}/hook', 1 + n / 62500, n / 250 % 250, 1 + n % 250), '{{}}')
           FROM generate_series(1, {hosts}) n"
    );
    app.run(&notify).await;
}

#[tokio::test]
async fn rows_to_thousands_of_hosts_are_sent_with_1024_open_files() {
    const HOSTS: i32 = 4000;
    let (database, provider) = (postgres::database().await, provider_everywhere());
    let setup = Setup::new(&database.url()).webhook("").url_from_the_row().files_max(1024);
    let mut instance = setup.start().await;
    let app = database.connect().await;
    // As many as the HTTP port takes, and nobody asks anything.
    let addr = instance.http_addr().await;
    let silent: Vec<TcpStream> =
        join_all((0..250).map(|_| TcpStream::connect(addr))).await.into_iter().flatten().collect();
    notify_hosts(&app, &provider, HOSTS).await;
    provider.wait_for(500, SOON).await;
    assert_eq!((http::get(addr, "/livez", &[]).await.status, silent.len()), (200, 250));
    app.until("SELECT NOT EXISTS (SELECT FROM outboxd.outbox)").await;
    let ended = "SELECT count(*) FILTER (WHERE status = 'SENT' AND attempts = 1) || ' sent, ' || count(*) FILTER (WHERE status = 'FAILED')
                        || ' failed, ' || (SELECT count(*) FROM outboxd.attempts WHERE outcome = 'failed') || ' attempts failed'
                   FROM outboxd.notification_log";
    assert_eq!(app.value::<String>(ended).await, format!("{HOSTS} sent, 0 failed, 0 attempts failed"));
}

/// It may have fewer files open than it has, so that every new one is refused.
fn take_files_away(instance: &Instance, soft: u32) {
    let limit = format!("--nofile={soft}:1024");
    let status = std::process::Command::new("prlimit").args(["--pid", &instance.pid().to_string(), &limit]).status();
    assert!(status.expect("prlimit runs").success());
}

#[tokio::test]
async fn a_call_for_which_the_process_lacks_a_file_goes_back_and_uses_up_no_attempt() {
    const HOSTS: i32 = 100;
    let (database, provider) = (postgres::database().await, provider_everywhere());
    let mut setup = Setup::new(&database.url()).webhook("").url_from_the_row().files_max(1024);
    setup = setup.set("channels.webhook.circuit.failures", 1).set("routes.default.max_attempts", 1);
    let mut instance = setup.start().await;
    let app = database.connect().await;
    notify_hosts(&app, &provider, 1).await;
    provider.wait_for(1, SOON).await;
    let wanted = "SELECT level = 'ok' AND value LIKE '1024 open files%' FROM outboxd.health WHERE name = 'descriptors'";
    app.until(wanted).await;
    take_files_away(&instance, 10);
    notify_hosts(&app, &provider, HOSTS).await;
    let told = "SELECT level = 'critical' AND value LIKE 'EMFILE (too many open files in the process) on 1 of 1 instance: % went back%'
                       AND action LIKE 'Raise the limit on open files to %' FROM outboxd.health WHERE name = 'descriptors'";
    app.until(told).await;
    let waiting = format!(
        "SELECT count(*) FILTER (WHERE attempts = 0) = {} FROM outboxd.notifications WHERE status <> 'SENT'",
        HOSTS - 1
    );
    app.until(&waiting).await;
    assert_eq!(provider.count(), 2, "the first host's connection was there already");
    take_files_away(&instance, 1024);
    app.until("SELECT NOT EXISTS (SELECT FROM outboxd.outbox)").await;
    let ended = "SELECT count(*) FILTER (WHERE status = 'SENT' AND attempts = 1) || ' sent, ' || (SELECT count(*) FROM outboxd.attempts)
                        || ' attempts on record, ' || (SELECT count(*) FROM outboxd.channel_state) || ' circuits'
                   FROM outboxd.notification_log";
    assert_eq!(app.value::<String>(ended).await, format!("{} sent, 0 attempts on record, 0 circuits", HOSTS + 1));
    assert_eq!(http::get(instance.http_addr().await, "/livez", &[]).await.status, 200);
    assert!(instance.metric("outboxd_own_errors_total", &[("error", "EMFILE")]).await >= f64::from(HOSTS - 1));
    let lines = instance.log().lines().filter(|line| line.contains("calls go back")).count();
    assert!((1..=2).contains(&lines), "{lines} lines of the log");
}

#[tokio::test]
async fn calls_that_cannot_have_a_file_each_are_made_one_after_the_other() {
    const HOSTS: i32 = 300;
    let (database, provider) = (postgres::database().await, provider_everywhere());
    provider.answer(Reply::ok().after(Duration::from_millis(300)));
    let mut instance = Setup::new(&database.url()).webhook("").url_from_the_row().files_max(160).start().await;
    assert!(instance.log().contains("the process may have 160 files open, and needs up to"), "{}", instance.log());
    let app = database.connect().await;
    notify_hosts(&app, &provider, HOSTS).await;
    provider.wait_for(40, SOON).await;
    assert_eq!(http::get(instance.http_addr().await, "/livez", &[]).await.status, 200);
    app.until_count(HOSTS, "notification_log WHERE status = 'SENT' AND attempts = 1").await;
    // A few of the forty are left to other topics.
    assert!((30..=40).contains(&provider.most_at_once()), "{}", provider.most_at_once());
    assert_eq!(instance.metric("outboxd_own_errors_total", &[("error", "EMFILE")]).await, 0.0);
    let told = "SELECT level = 'warn' AND value LIKE '160 open files on 1 of 1 instances, which may use %' FROM outboxd.health WHERE name = 'descriptors'";
    app.until(told).await;
}
