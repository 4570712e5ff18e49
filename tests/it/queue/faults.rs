//! Redis at its worst, seen from the queue alone. Each fault is tried on both Redis backends.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use outboxd::config::{QueueConfig, QueueKind};
use outboxd::queue::{Depth, Error, Loss, Queue};

use super::{PATIENCE, TTL, assert_nothing_arrives, config, distinct, ids, messages, open_at, take_all};
use crate::support::proxy::{Fault, Proxy};
use crate::support::redis::RedisServer;
use crate::support::wait::{until, until_ok};

const NO_WAIT: Duration = Duration::from_millis(1);

/// A call is given up after at most this long: reaching a server, then its response.
const CALL_MAX: Duration = Duration::from_secs(9);

/// Makes a test of each function for each Redis backend.
macro_rules! for_both_redis_backends {
    ($($name:ident),* $(,)?) => {
        for_both_redis_backends!(@ list, QueueKind::List, $($name),*);
        for_both_redis_backends!(@ stream, QueueKind::Stream, $($name),*);
    };
    (@ $module:ident, $kind:expr, $($name:ident),*) => {
        mod $module {
            use super::QueueKind;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    super::$name(super::config($kind)).await;
                }
            )*
        }
    };
}

for_both_redis_backends!(
    a_redis_killed_without_persistence_is_noticed_and_used_again,
    a_restart_that_keeps_its_data_loses_nothing_and_tells_no_loss,
    a_flush_under_a_waiting_consumer_is_noticed_and_repaired,
    a_full_redis_refuses_pushes_and_can_still_be_drained,
    an_evicting_redis_is_refused_with_the_fix,
    a_swallowed_reply_strands_no_message_and_delivers_none_twice,
    a_silent_link_is_given_up_within_a_bound_and_made_anew,
    a_reset_link_is_made_anew,
    a_slow_link_delivers_what_a_fast_one_does,
    a_job_longer_than_the_ttl_is_not_taken_over,
    a_server_that_turned_replica_is_waited_out,
    a_server_that_is_loading_is_waited_out,
    a_stopped_redis_makes_nobody_look_dead,
    garbage_by_hand_is_dropped_and_blocks_nothing,
    an_acknowledgement_that_failed_goes_along_with_the_next,
);

async fn push_until_accepted(queue: &Arc<dyn Queue>, ids: std::ops::Range<i64>) {
    let batch = messages(ids);
    until_ok("a push is accepted", async || queue.push(&batch).await).await;
}

/// The first loss told, however long Redis takes to come back.
async fn told_loss(queue: &Arc<dyn Queue>, seen: i64) -> Loss {
    until_ok("a loss is told", async || queue.check_loss(seen).await.ok().flatten().ok_or("none")).await
}

async fn a_redis_killed_without_persistence_is_noticed_and_used_again(config: QueueConfig) {
    let mut server = RedisServer::forgetful();
    let queue = open_at(&config, server.url()).await.unwrap();
    let mut consumer = queue.consumer("a").await.unwrap();
    let seen = queue.push(&messages(0..10)).await.unwrap().counter;
    assert_eq!(queue.check_loss(seen).await.unwrap(), None);
    server.kill();
    assert!(matches!(queue.push(&messages(10..11)).await, Err(Error::Unavailable(_))));
    server.restart();
    let first = until_ok("Redis answers", async || queue.check_loss(seen).await).await;
    assert_eq!(first, Some(Loss::All), "told with the first answer");
    assert_eq!(queue.check_loss(seen).await.unwrap(), None, "told once");
    push_until_accepted(&queue, 10..20).await;
    assert_eq!(ids(&take_all(&mut consumer, 10).await), (10..20).collect::<Vec<_>>());
}

async fn a_restart_that_keeps_its_data_loses_nothing_and_tells_no_loss(config: QueueConfig) {
    let mut server = RedisServer::durable();
    let queue = open_at(&config, server.url()).await.unwrap();
    let mut consumer = queue.consumer("a").await.unwrap();
    let seen = queue.push(&messages(0..10)).await.unwrap().counter;
    let held = consumer.take(3, NO_WAIT).await.unwrap();
    assert_eq!(ids(&held), [0, 1, 2]);
    server.kill();
    server.restart();
    let after = until_ok("the queue answers", async || queue.check_loss(seen).await).await;
    assert_eq!(after, None);
    assert_eq!(ids(&take_all(&mut consumer, 7).await), (3..10).collect::<Vec<_>>());
    let next = until_ok("a push is accepted", async || queue.push(&messages(10..11)).await).await;
    assert!(next.counter > seen);
    assert_eq!(queue.check_loss(next.counter).await.unwrap(), None);
}

async fn a_flush_under_a_waiting_consumer_is_noticed_and_repaired(config: QueueConfig) {
    let server = RedisServer::forgetful();
    let queue = open_at(&config, server.url()).await.unwrap();
    let other_process = open_at(&config, server.url()).await.unwrap();
    let seen = queue.push(&messages(0..100)).await.unwrap().counter;
    let mut holder = queue.consumer("holder").await.unwrap();
    let held = holder.take(100, NO_WAIT).await.unwrap();
    let mut waiting = queue.consumer("waiting").await.unwrap();
    let take = tokio::spawn(async move { (waiting.take(10, PATIENCE).await, waiting) });
    server.has_blocked_clients(1).await;

    server.run::<()>("FLUSHALL").await;
    assert_eq!(queue.check_loss(seen).await.unwrap(), Some(Loss::All));
    let elsewhere = other_process.check_loss(seen).await.unwrap();
    assert_eq!(elsewhere, Some(Loss::All), "a process that pushed nothing tells it too");
    assert_eq!(queue.check_loss(seen).await.unwrap(), None);
    assert_eq!(other_process.check_loss(seen).await.unwrap(), None);

    let pushed = queue.push(&messages(100..101)).await.unwrap();
    assert!(pushed.counter > seen, "counters only rise");
    let (taken, waiting) = take.await.unwrap();
    assert_eq!(ids(&taken.unwrap()), [100], "the call that waited through the flush delivers");
    drop(waiting);
    holder.acker().ack(&held).await.unwrap();
    holder.maintain().await.unwrap();
    assert_eq!(queue.check_loss(pushed.counter).await.unwrap(), None);
    server.run::<()>("FLUSHALL").await;
    assert_eq!(told_loss(&queue, seen).await, Loss::All, "the next loss is told again");
}

async fn a_full_redis_refuses_pushes_and_can_still_be_drained(config: QueueConfig) {
    let server = RedisServer::forgetful();
    let queue = open_at(&config, server.url()).await.unwrap();
    let mut consumer = queue.consumer("a").await.unwrap();
    let mut crashed = queue.consumer("crashed").await.unwrap();
    queue.push(&messages(0..10)).await.unwrap();
    queue.push(&messages(10..100)).await.unwrap();
    assert_eq!(crashed.take(10, NO_WAIT).await.unwrap().len(), 10);
    drop(crashed);
    server.run::<()>("CONFIG SET maxmemory 1").await;
    assert!(matches!(queue.push(&messages(100..101)).await, Err(Error::Full(_))));
    let taken = take_all(&mut consumer, 100).await;
    assert_eq!(distinct(&taken), 100, "what a dead consumer held included");
    consumer.acker().ack(&taken).await.unwrap();
    assert_eq!(queue.depth().await.unwrap(), Depth::default());
    assert_eq!(consumer.take(1, NO_WAIT).await.unwrap(), []);
    server.run::<()>("CONFIG SET maxmemory 0").await;
    queue.push(&messages(100..101)).await.unwrap();
    assert_eq!(ids(&take_all(&mut consumer, 1).await), [100]);
}

async fn an_evicting_redis_is_refused_with_the_fix(config: QueueConfig) {
    let server = RedisServer::start(&["--maxmemory-policy", "allkeys-lru"]);
    let Err(Error::Unusable(why)) = open_at(&config, server.url()).await else { panic!("it must be refused") };
    assert!(why.contains("allkeys-lru") && why.contains("CONFIG SET maxmemory-policy noeviction"), "{why}");
    server.run::<()>("CONFIG SET maxmemory-policy noeviction").await;
    open_at(&config, server.url()).await.unwrap();
}

async fn a_swallowed_reply_strands_no_message_and_delivers_none_twice(config: QueueConfig) {
    let server = RedisServer::forgetful();
    let proxy = Proxy::start(server.port()).await;
    let direct = open_at(&config, server.url()).await.unwrap();
    let queue = open_at(&config, &format!("redis://127.0.0.1:{}", proxy.port())).await.unwrap();
    let mut consumer = queue.consumer("a").await.unwrap();
    assert_eq!(consumer.take(1, NO_WAIT).await.unwrap(), []);
    proxy.set(Fault::SwallowReplies);
    let take = tokio::spawn(async move { (consumer.take(10, PATIENCE).await, consumer) });
    direct.push(&messages(0..3)).await.unwrap();
    until("the messages were moved", async || direct.depth().await.unwrap().in_flight >= 1).await;
    let (taken, mut consumer) = take.await.unwrap();
    assert!(matches!(taken, Err(Error::Unavailable(_))), "{taken:?}");
    assert!(proxy.swallowed() > 0);
    proxy.heal();
    let taken = take_all(&mut consumer, 3).await;
    assert_eq!(ids(&taken), [0, 1, 2]);
    assert_nothing_arrives(&mut consumer).await;
    consumer.acker().ack(&taken).await.unwrap();
    assert_eq!(direct.depth().await.unwrap(), Depth::default());
}

async fn a_silent_link_is_given_up_within_a_bound_and_made_anew(config: QueueConfig) {
    let server = RedisServer::forgetful();
    let proxy = Proxy::start(server.port()).await;
    let queue = open_at(&config, &format!("redis://127.0.0.1:{}", proxy.port())).await.unwrap();
    let mut consumer = queue.consumer("a").await.unwrap();
    let acker = consumer.acker();
    queue.push(&messages(0..5)).await.unwrap();
    let taken = consumer.take(3, NO_WAIT).await.unwrap();
    for fault in [Fault::BlackHole, Fault::HalfOpen] {
        proxy.set(fault);
        let started = Instant::now();
        let (push, take, ack, loss, depth) = tokio::join!(
            queue.push(&[]),
            consumer.take(1, NO_WAIT),
            acker.ack(&taken),
            queue.check_loss(0),
            queue.depth()
        );
        assert!(started.elapsed() < CALL_MAX, "{fault:?}: {:?}", started.elapsed());
        assert!(push.is_err() && take.is_err() && ack.is_err() && loss.is_err() && depth.is_err(), "{fault:?}");
        proxy.heal();
        until_ok("the queue answers", async || queue.depth().await).await;
    }
    until_ok("the acknowledgement arrives", async || acker.ack(&taken).await).await;
    assert_eq!(ids(&take_all(&mut consumer, 2).await), [3, 4]);
    assert_eq!(queue.depth().await.unwrap(), Depth { waiting: 0, in_flight: 2 });
}

async fn a_reset_link_is_made_anew(config: QueueConfig) {
    let server = RedisServer::forgetful();
    let proxy = Proxy::start(server.port()).await;
    let queue = open_at(&config, &format!("redis://127.0.0.1:{}", proxy.port())).await.unwrap();
    let mut consumer = queue.consumer("a").await.unwrap();
    proxy.set(Fault::Reset);
    assert!(matches!(queue.push(&messages(0..1)).await, Err(Error::Unavailable(_))));
    assert!(matches!(consumer.take(1, NO_WAIT).await, Err(Error::Unavailable(_))));
    proxy.heal();
    push_until_accepted(&queue, 0..1).await;
    proxy.cut_all();
    assert_eq!(ids(&take_all(&mut consumer, 1).await), [0]);
}

async fn a_slow_link_delivers_what_a_fast_one_does(config: QueueConfig) {
    let server = RedisServer::forgetful();
    let proxy = Proxy::start(server.port()).await;
    let queue = open_at(&config, &format!("redis://127.0.0.1:{}", proxy.port())).await.unwrap();
    let mut consumer = queue.consumer("a").await.unwrap();
    // More than the half second after which the Redis client gives up if it is not told otherwise.
    proxy.set(Fault::Delay(Duration::from_millis(350)));
    queue.push(&messages(0..3)).await.unwrap();
    let taken = consumer.take(10, Duration::from_millis(100)).await.unwrap();
    assert_eq!(ids(&taken), [0, 1, 2]);
    consumer.acker().ack(&taken).await.unwrap();
    proxy.heal();
    assert_eq!(queue.depth().await.unwrap(), Depth::default());
}

async fn a_job_longer_than_the_ttl_is_not_taken_over(config: QueueConfig) {
    let queue = open_at(&config, crate::support::redis::shared().url()).await.unwrap();
    let mut busy = queue.consumer("busy").await.unwrap();
    let mut idle = queue.consumer("idle").await.unwrap();
    queue.push(&messages(0..3)).await.unwrap();
    let held = busy.take(3, NO_WAIT).await.unwrap();
    let started = Instant::now();
    while started.elapsed() < TTL * 4 {
        busy.maintain().await.unwrap();
        let maintained = idle.maintain().await.unwrap();
        assert_eq!(maintained.reclaimed, 0);
        assert_eq!(idle.take(10, TTL / 12).await.unwrap(), []);
        assert_eq!(busy.take(10, TTL / 12).await.unwrap(), []);
    }
    busy.acker().ack(&held).await.unwrap();
    assert_eq!(queue.depth().await.unwrap(), Depth::default());
}

async fn a_server_that_turned_replica_is_waited_out(config: QueueConfig) {
    let server = RedisServer::forgetful();
    let primary = RedisServer::forgetful();
    let queue = open_at(&config, server.url()).await.unwrap();
    let mut consumer = queue.consumer("a").await.unwrap();
    let acker = consumer.acker();
    queue.push(&messages(0..2)).await.unwrap();
    let taken = consumer.take(1, NO_WAIT).await.unwrap();
    // A primary that is not reachable: the replica keeps its data and refuses writes.
    server.run::<()>(&format!("REPLICAOF 127.0.0.1 {}", primary.port() ^ 1)).await;
    assert!(matches!(queue.push(&messages(2..3)).await, Err(Error::Unavailable(_))));
    assert!(matches!(acker.ack(&taken).await, Err(Error::Unavailable(_))));
    assert!(matches!(consumer.take(1, NO_WAIT).await, Err(Error::Unavailable(_))));
    server.run::<()>("REPLICAOF NO ONE").await;
    push_until_accepted(&queue, 2..3).await;
    until_ok("the acknowledgement arrives", async || acker.ack(&taken).await).await;
    assert_eq!(ids(&take_all(&mut consumer, 2).await), [1, 2]);
    assert_eq!(queue.check_loss(0).await.unwrap(), None);
}

async fn a_server_that_is_loading_is_waited_out(config: QueueConfig) {
    let delays = [
        "--key-load-delay",
        "5000",
        "--loading-process-events-interval-bytes",
        "1024",
        "--enable-debug-command",
        "yes",
    ];
    let mut server = RedisServer::start(&delays);
    let queue = open_at(&config, server.url()).await.unwrap();
    let mut consumer = queue.consumer("a").await.unwrap();
    queue.push(&messages(0..3)).await.unwrap();
    server.run::<()>("DEBUG POPULATE 200 filler 200").await;
    server.run::<()>("SAVE").await;
    server.kill();
    server.launch();
    until("the server is met while it is loading", async || {
        let error = queue.depth().await.expect_err("it loads for a while");
        error.to_string().contains("loading")
    })
    .await;
    assert_eq!(ids(&take_all(&mut consumer, 3).await), [0, 1, 2]);
    assert_eq!(queue.check_loss(0).await.unwrap(), None);
}

async fn a_stopped_redis_makes_nobody_look_dead(config: QueueConfig) {
    let server = RedisServer::forgetful();
    let queue = open_at(&config, server.url()).await.unwrap();
    let mut busy = queue.consumer("busy").await.unwrap();
    let mut other = queue.consumer("other").await.unwrap();
    queue.push(&messages(0..3)).await.unwrap();
    assert_eq!(busy.take(3, NO_WAIT).await.unwrap().len(), 3);
    assert_eq!(other.take(3, NO_WAIT).await.unwrap(), []);
    server.signal(Signal::SIGSTOP);
    tokio::time::sleep(TTL + TTL / 4).await;
    server.signal(Signal::SIGCONT);
    assert_eq!(other.maintain().await.unwrap().reclaimed, 0, "the first to check must not take over");
    busy.maintain().await.unwrap();
    assert_eq!(other.maintain().await.unwrap().reclaimed, 0);
    assert_eq!(queue.depth().await.unwrap().in_flight, 3);
}

async fn garbage_by_hand_is_dropped_and_blocks_nothing(config: QueueConfig) {
    let server = RedisServer::forgetful();
    let queue = open_at(&config, server.url()).await.unwrap();
    let key = format!("{{{}}}:v1:{}", config.prefix, queue.kind());
    for garbage in ["hello", "1:2:3:4", "1:2:3:4:", "\u{fffd}"] {
        match config.kind {
            QueueKind::List => server.run::<()>(&format!("LPUSH {key} {garbage}")).await,
            _ => {
                server.run::<()>(&format!("XADD {key} * m {garbage}")).await;
                server.run::<()>(&format!("XADD {key} * other 1:1:0:0:orders")).await;
            }
        }
    }
    if config.kind == QueueKind::List {
        let mut bytes = redis::cmd("LPUSH");
        bytes.arg(&key).arg(b"\xff\xfe\x00");
        bytes.exec_async(&mut server.connection().await).await.unwrap();
    }
    queue.push(&messages(0..2)).await.unwrap();
    let mut consumer = queue.consumer("a").await.unwrap();
    let taken = take_all(&mut consumer, 2).await;
    assert_eq!(ids(&taken), [0, 1]);
    assert_eq!(queue.depth().await.unwrap(), Depth { waiting: 0, in_flight: 2 });
    consumer.acker().ack(&taken).await.unwrap();
    assert_eq!(queue.depth().await.unwrap(), Depth::default());
}

async fn an_acknowledgement_that_failed_goes_along_with_the_next(config: QueueConfig) {
    let server = RedisServer::forgetful();
    let proxy = Proxy::start(server.port()).await;
    let queue = open_at(&config, &format!("redis://127.0.0.1:{}", proxy.port())).await.unwrap();
    let direct = open_at(&config, server.url()).await.unwrap();
    let mut consumer = queue.consumer("a").await.unwrap();
    queue.push(&messages(0..2)).await.unwrap();
    let taken = consumer.take(2, NO_WAIT).await.unwrap();
    proxy.set(Fault::Reset);
    assert!(consumer.acker().ack(&taken[..1]).await.is_err());
    proxy.heal();
    until_ok("the link is made anew", async || consumer.maintain().await).await;
    assert_eq!(direct.depth().await.unwrap(), Depth { waiting: 0, in_flight: 1 });
    queue.push(&messages(2..3)).await.unwrap();
    assert_eq!(ids(&take_all(&mut consumer, 1).await), [2], "what is in flight is not delivered again");
}
