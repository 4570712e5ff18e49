//! What `/metrics` shows of a working instance, read strictly.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use outboxd::telemetry::catalog::{Kind, METRICS};

use crate::support::http::get;
use crate::support::instance::Setup;
use crate::support::prometheus::Scrape;
use crate::support::provider::Reply;
use crate::support::sql::Sql;
use crate::support::world::{Carrier, World};
use crate::support::{postgres, redis, wait};

async fn scrape(addr: SocketAddr) -> Scrape {
    let answer = get(addr, "/metrics", &[]).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    Scrape::parse(&answer.body)
}

/// Scrapes until it is so.
async fn until(addr: SocketAddr, what: &str, so: impl Fn(&Scrape) -> bool) -> Scrape {
    wait::until_ok(what, async || {
        let scrape = scrape(addr).await;
        if so(&scrape) { Ok(scrape) } else { Err(scrape) }
    })
    .await
}

#[tokio::test]
async fn a_working_instance_counts_what_it_does() {
    let world = World::new(Carrier::Memory).await;
    world.provider.answer_with(|call| match call.recipient().as_str() {
        "bad" => Reply::status(400),
        "slow" if call.header("outboxd-attempt") == Some("1") => Reply::hang(),
        "busy" if call.header("outboxd-attempt") == Some("1") => Reply::status(503),
        _ => Reply::ok(),
    });
    let setup = world.setup.clone();
    let mut instance = setup.redis(redis::shared().url(), "stream", &redis::unique_prefix()).start().await;
    let addr = instance.http_addr().await;
    for recipient in ["good", "bad", "slow", "busy"] {
        world.run(&format!("SELECT outboxd.notify('orders', '{recipient}', '{{}}')")).await;
    }
    world.run("SELECT outboxd.notify('later', 'r', '{}', send_at => now() + interval '1 day')").await;
    world.until_count(4, "notifications WHERE status IN ('SENT', 'FAILED')").await;

    let rows = |scrape: &Scrape, topic: &str, status: &str| {
        scrape.value("outboxd_rows", &[("topic", topic), ("status", status)])
    };
    let scrape = until(addr, "one dead, one later, none queued", |scrape| {
        rows(scrape, "orders", "FAILED") == Some(1.0)
            && rows(scrape, "later", "PENDING") == Some(1.0)
            && rows(scrape, "orders", "QUEUED").unwrap_or(0.0) == 0.0
            && scrape.value("outboxd_sent_total", &[]) == Some(3.0)
            && scrape.value("outboxd_retries_total", &[]) == Some(2.0)
    })
    .await;
    for (name, labels, wanted) in [
        ("outboxd_sent_total", &[][..], 3.0),
        ("outboxd_dead_letters_total", &[], 1.0),
        ("outboxd_unknown_outcomes_total", &[], 1.0),
        ("outboxd_retries_total", &[], 2.0),
        ("outboxd_duplicates_total", &[], 0.0),
        ("outboxd_leases_ended_total", &[], 0.0),
        ("outboxd_attempts_total", &[("channel", "webhook"), ("outcome", "sent")], 3.0),
        ("outboxd_attempts_total", &[("channel", "webhook"), ("outcome", "permanent")], 1.0),
        ("outboxd_attempts_total", &[("channel", "webhook"), ("outcome", "transient")], 1.0),
        ("outboxd_attempts_total", &[("channel", "webhook"), ("outcome", "unknown")], 1.0),
        ("outboxd_attempt_duration_seconds_count", &[("channel", "webhook"), ("outcome", "sent")], 3.0),
        ("outboxd_claims_total", &[("case", "claimed")], 6.0),
        ("outboxd_notify_to_sent_seconds_count", &[], 3.0),
        ("outboxd_seen_to_sent_seconds_count", &[], 3.0),
        ("outboxd_published_total", &[], 6.0),
        ("outboxd_channel_paused", &[("channel", "webhook")], 0.0),
        ("outboxd_channel_held_origins", &[("channel", "webhook"), ("reason", "failures")], 0.0),
        ("outboxd_database_pool_connections_max", &[], 10.0),
        ("outboxd_queue_depth", &[("backend", "stream")], 0.0),
        ("outboxd_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1.0),
    ] {
        assert_eq!(scrape.value(name, labels), Some(wanted), "{name} {labels:?}");
    }
    // The one that was slow took its timeout of a second; all together less than the test's patience.
    let latency = scrape.value("outboxd_notify_to_sent_seconds_sum", &[]).unwrap();
    let seen = scrape.value("outboxd_seen_to_sent_seconds_sum", &[]).unwrap();
    assert!((1.0..60.0).contains(&latency) && seen > 0.0 && seen < latency, "{latency} {seen}");
    let started = scrape.value("process_start_time_seconds", &[]).unwrap();
    assert!(started > 1.7e9, "{started}");
}

#[tokio::test]
async fn what_follows_the_death_of_a_worker_is_counted_by_whoever_ends_its_leases() {
    let database = postgres::database().await;
    let setup = Setup::new(&database.url())
        .webhook("http://127.0.0.1:9/")
        .toml("[routes.once]\nchannels = [\"webhook\"]\nmax_attempts = 1\n")
        .redis(redis::shared().url(), "stream", &redis::unique_prefix());
    let mut survivor = setup.clone().roles("producer,relay,api").start().await;
    let addr = survivor.http_addr().await;
    let app = database.connect().await;
    app.run("SELECT outboxd.notify(topic, 'r', '{}') FROM unnest(ARRAY['orders', 'orders', 'once']) topic").await;
    // All of them, so that one claim takes all.
    app.until_count(3, "outbox WHERE state = 'published'").await;
    setup.roles("worker").failpoints("after_claim=abort").spawn().exit_code().await;

    let ended = |scrape: &Scrape| scrape.value("outboxd_leases_ended_total", &[]) == Some(3.0);
    let scrape = until(addr, "its leases are over", ended).await;
    for (name, wanted) in
        [("outboxd_retries_total", 2.0), ("outboxd_dead_letters_total", 1.0), ("outboxd_unknown_outcomes_total", 3.0)]
    {
        assert_eq!(scrape.value(name, &[]), Some(wanted), "{name}");
    }
}

#[tokio::test]
async fn a_row_that_expired_before_its_call_counts_as_a_dead_letter() {
    let database = postgres::database().await;
    let mut instance = Setup::new(&database.url()).webhook("http://127.0.0.1:9/").start().await;
    let addr = instance.http_addr().await;
    let app = database.connect().await;
    app.run("SELECT outboxd.notify('orders', 'r', '{}', expires_at => now() - interval '1 s')").await;
    app.until("SELECT status = 'FAILED' FROM outboxd.notifications").await;
    let scrape = until(addr, "counted", |scrape| scrape.value("outboxd_dead_letters_total", &[]) == Some(1.0)).await;
    assert_eq!(scrape.value("outboxd_attempts_total", &[("channel", "webhook"), ("outcome", "permanent")]), None);
}

#[tokio::test]
async fn messages_that_cannot_start_now_are_put_back_unclaimed_and_counted() {
    let world = World::new(Carrier::Memory).await;
    let setup = world.setup.clone();
    let setup = setup.redis(redis::shared().url(), "stream", &redis::unique_prefix());
    let _relay = setup.clone().roles("producer,relay").start().await;
    world.run("SELECT outboxd.notify('orders', 'r', '{}') FROM generate_series(1, 3)").await;
    world.until_count(3, "outbox WHERE state = 'published'").await;
    world.run("SELECT outboxd.pause('orders')").await;
    let mut worker = setup.roles("worker,api").start().await;
    let addr = worker.http_addr().await;
    let put_back = |scrape: &Scrape| scrape.value("outboxd_put_back_total", &[]);
    until(addr, "they go back", |scrape| put_back(scrape) == Some(3.0)).await;
    let waiting =
        "SELECT count(*) = 3 FROM outboxd.outbox WHERE state = 'ready' AND retry_at IS NOT NULL AND attempts = 0";
    world.until(waiting).await;
    assert_eq!(world.provider.count(), 0);

    world.run("SELECT outboxd.resume('orders')").await;
    world.until_count(3, "notifications WHERE status = 'SENT' AND attempts = 1").await;
    let scrape = until(addr, "all are counted", |scrape| scrape.value("outboxd_sent_total", &[]) == Some(3.0)).await;
    assert_eq!(scrape.value("outboxd_claims_total", &[("case", "claimed")]), Some(3.0));
    assert_eq!(scrape.value("outboxd_released_total", &[]), Some(0.0), "nothing was claimed in vain");
}

#[tokio::test]
async fn an_unpublished_row_grows_old_visibly_and_a_paused_one_does_not() {
    let database = postgres::database().await;
    let redis = redis::RedisServer::forgetful();
    let setup = Setup::new(&database.url()).webhook("http://127.0.0.1:9/");
    // Shows and does not publish: the others' work is not done by anyone.
    let mut instance = setup.redis(redis.url(), "stream", "t").roles("api").start().await;
    let addr = instance.http_addr().await;
    let app = database.connect().await;
    app.run("SELECT outboxd.notify('orders', 'r', '{}')").await;
    let age = |scrape: &Scrape| scrape.value("outboxd_oldest_unpublished_age_seconds", &[]);
    until(addr, "it ages", |scrape| age(scrape) > Some(0.5)).await;
    app.run("SELECT outboxd.pause('orders')").await;
    let scrape = until(addr, "it waits on purpose", |scrape| age(scrape) == Some(0.0)).await;
    assert_eq!(scrape.value("outboxd_rows", &[("topic", "orders"), ("status", "QUEUED")]), Some(1.0));
}

#[tokio::test]
async fn rows_are_counted_once_for_all_instances() {
    let database = postgres::database().await;
    let redis = redis::RedisServer::forgetful();
    let setup =
        || Setup::new(&database.url()).webhook("http://127.0.0.1:9/").redis(redis.url(), "stream", "t").roles("api");
    let (mut one, mut other) = (setup().start().await, setup().start().await);
    let (one, other) = (one.http_addr().await, other.http_addr().await);
    let app = database.connect().await;
    app.run("SELECT outboxd.notify('orders', 'r', '{}')").await;
    let queued = [("topic", "orders"), ("status", "QUEUED")];
    let is_counted = |scrape: &Scrape| scrape.value("outboxd_rows", &queued) == Some(1.0);
    let counted_at = |scrape: &Scrape| scrape.value("outboxd_sampled_timestamp_seconds", &[]);
    // Whoever counted for itself would never say the same time.
    wait::until("both say the same time", async || {
        let shown = until(one, "counted", is_counted).await;
        counted_at(&until(other, "counted", is_counted).await) == counted_at(&shown)
    })
    .await;
}

#[tokio::test]
async fn the_checks_of_the_health_view_are_gauges() {
    let database = postgres::database().await;
    database.connect().await.run("SELECT outboxd.pause('quiz')").await;
    let mut instance = Setup::new(&database.url()).webhook("http://127.0.0.1:9/").start().await;
    let level = |scrape: &Scrape, check: &str| scrape.value("outboxd_health_level", &[("check", check)]);
    let scrape = until(instance.http_addr().await, "sampled", |scrape| level(scrape, "paused").is_some()).await;
    assert_eq!(
        (level(&scrape, "paused"), level(&scrape, "schedules"), level(&scrape, "routes")),
        (Some(1.0), Some(0.0), Some(0.0))
    );
}

#[tokio::test]
async fn a_held_channel_shows() {
    let world = World::new(Carrier::Memory).await;
    world.provider.answer(Reply::status(503).header("retry-after", "60"));
    let mut instance = world.setup.start().await;
    let addr = instance.http_addr().await;
    world.run("SELECT outboxd.notify('orders', 'r', '{}')").await;
    let held = [("channel", "webhook"), ("reason", "retry_after")];
    until(addr, "held", |scrape| scrape.value("outboxd_channel_held_origins", &held) == Some(1.0)).await;
    world.run("SELECT outboxd.pause_channel('webhook')").await;
    let paused = [("channel", "webhook")];
    until(addr, "paused", |scrape| scrape.value("outboxd_channel_paused", &paused) == Some(1.0)).await;
}

#[tokio::test]
async fn every_metric_is_described_and_named_as_prometheus_wants_it() {
    let world = World::new(Carrier::Memory).await;
    let mut instance = world.setup.start().await;
    let addr = instance.http_addr().await;
    world.run("SELECT outboxd.notify('a \"quoted\\\\topic\"', 'r', '{}')").await;
    let scrape = until(addr, "it is counted", |scrape| scrape.value("outboxd_sent_total", &[]) == Some(1.0)).await;
    for (name, family) in &scrape.0 {
        let metric = METRICS.iter().find(|metric| metric.name == name);
        let metric = metric.unwrap_or_else(|| panic!("{name} is not in the catalogue"));
        assert_eq!((family.help.as_deref(), family.kind.as_str()), (Some(metric.help), metric.kind.name()), "{name}");
        let wanted: BTreeSet<&str> = metric.labels.iter().copied().collect();
        for sample in &family.samples {
            let given: BTreeSet<&str> = sample.labels.keys().map(String::as_str).filter(|key| *key != "le").collect();
            assert_eq!(given, wanted, "{sample:?}");
        }
    }
    for metric in METRICS {
        let name = metric.name;
        assert_eq!(name.ends_with("_total"), metric.kind == Kind::Counter, "{name}");
        assert!(name.starts_with("outboxd_") || name.starts_with("process_"), "{name}");
        let odd = ["_ms", "_millis", "_minutes", "_kb", "_percent"].iter().find(|unit| name.contains(*unit));
        assert_eq!(odd, None, "{name} is in a base unit");
        assert!(metric.help.ends_with('.') && metric.help.len() > 10, "{name}");
        if metric.kind == Kind::Counter && metric.labels.is_empty() {
            assert!(scrape.value(name, &[]).is_some(), "{name} is shown before its first event");
        }
    }
}

#[tokio::test]
async fn what_failed_before_anybody_was_called_is_not_counted_as_a_call() {
    let database = postgres::database().await;
    let setup =
        Setup::new(&database.url()).webhook("http://127.0.0.1:9/").set("channels.webhook.url", "{{ recipient }}");
    let mut instance = setup.set("channels.webhook.body", "{{ payload.text|tojson }}").start().await;
    let addr = instance.http_addr().await;
    let app = database.connect().await;
    // The guard refuses the one, the template the other.
    app.run("SELECT outboxd.notify('orders', 'http://127.0.0.1:9/', '{\"text\": 1}')").await;
    app.run("SELECT outboxd.notify('orders', 'https://provider.example/', '{}')").await;
    app.until_count(2, "notifications WHERE status = 'FAILED'").await;
    let attempts = |scrape: &Scrape, outcome| {
        scrape.value("outboxd_attempts_total", &[("channel", "webhook"), ("outcome", outcome)])
    };
    let scrape = until(addr, "both are counted", |scrape| attempts(scrape, "refused") == Some(2.0)).await;
    for outcome in ["sent", "transient", "permanent", "unknown"] {
        assert_eq!(attempts(&scrape, outcome).unwrap_or_default(), 0.0, "{outcome}");
    }
    let took = [("channel", "webhook"), ("outcome", "refused")];
    assert_eq!(scrape.value("outboxd_attempt_duration_seconds_count", &took).unwrap_or_default(), 0.0);
}

/// The names that this source file gives to the macros of `metrics`.
fn emitted(code: &str) -> BTreeSet<String> {
    let calls = ["counter!(", "gauge!(", "histogram!("].iter().flat_map(|call| code.split(call).skip(1));
    let literals = calls.filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next());
    literals.map(str::to_owned).collect()
}

#[test]
fn whatever_the_sources_emit_is_in_the_catalogue_and_the_other_way_round() {
    let mut found = BTreeSet::new();
    let mut dirs = vec![std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => dirs.push(path),
                false => found.extend(emitted(&std::fs::read_to_string(path).unwrap())),
            }
        }
    }
    let listed: BTreeSet<String> = METRICS.iter().map(|metric| metric.name.to_owned()).collect();
    assert_eq!(found, listed);
}
