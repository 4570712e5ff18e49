//! Names whose name server is silent: looking them up keeps nobody else waiting.

use std::time::{Duration, Instant};

use crate::support::preload;
use crate::support::provider::{Provider, Reply};
use crate::support::sql;
use crate::support::world::{Carrier, World};

/// For longer than lookups that are each given up after two seconds would take to use up every thread.
const GOES_ON_FOR: Duration = Duration::from_secs(8);
/// By the database's clock, from commit to SENT.
const WAIT_MAX_S: f64 = 2.0;

#[tokio::test]
async fn names_that_no_name_server_tells_of_keep_no_others_waiting() {
    let world = World::new(Carrier::Stream).await;
    let honest = Provider::start();
    honest.answer(Reply::ok());
    let setup = world.setup.clone().url_from_the_row().set("routes.default.max_attempts", 100);
    let instance = setup.env("LD_PRELOAD", preload::names()).start().await;
    let port = honest.addr().port();
    let notify = format!(
        "SELECT outboxd.notify('silent', format('http://n%s.silent.test:{port}/', n), '{{}}') FROM generate_series(1, 2000) n"
    );
    sql::run(&world.app, &notify).await;
    let (began, mut waits) = (Instant::now(), Vec::new());
    while began.elapsed() < GOES_ON_FOR {
        let url = format!("http://n{}.honest.test:{port}/", waits.len());
        let id: i64 = sql::value(&world.app, &format!("SELECT outboxd.notify('honest', '{url}', '{{}}')")).await;
        let row = format!("FROM outboxd.notification_log WHERE id = {id}");
        sql::until(&world.app, &format!("SELECT status = 'SENT' {row}")).await;
        let wait = format!("SELECT extract(epoch FROM finished_at - created_at)::float8 {row} AND attempts = 1");
        waits.push(sql::value::<f64>(&world.app, &wait).await);
    }
    let most = waits.iter().copied().fold(0.0, f64::max);
    println!("{} names, the longest wait {most:.2}", waits.len());
    assert!(most < WAIT_MAX_S, "{waits:.2?}");
    let told = "SELECT level = 'warn' AND value LIKE 'LOOKUPS (%) on 1 of 1 instances: %' AND action LIKE 'Look at the name server %'
                  FROM outboxd.health WHERE name = 'descriptors'";
    sql::until(&world.app, told).await;
    let began = Instant::now();
    assert_eq!(instance.drain().await, 0);
    assert!(began.elapsed() < Duration::from_secs(10), "it ends before they are given up");
}
