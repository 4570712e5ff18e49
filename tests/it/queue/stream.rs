//! What only the stream backend does.

use std::time::Duration;

use outboxd::config::QueueKind;
use outboxd::queue::{Depth, Loss, Maintained};
use tokio::task::JoinSet;

use super::{config, ids, messages, open_at, take_all};
use crate::support::redis::{RedisServer, shared};

const NO_WAIT: Duration = Duration::from_millis(1);

#[tokio::test]
async fn every_message_of_a_push_has_an_entry_of_its_own() {
    let config = config(QueueKind::Stream);
    let key = format!("{{{}}}:v1:stream", config.prefix);
    let queue = open_at(&config, shared().url()).await.unwrap();
    queue.push(&messages(0..64)).await.unwrap();
    assert_eq!(shared().run::<i64>(&format!("XLEN {key}")).await, 64);
    let mut consumer = queue.consumer("w").await.unwrap();
    let taken = consumer.take(64, NO_WAIT).await.unwrap();
    consumer.acker().ack(&taken[1..]).await.unwrap();
    assert_eq!(shared().run::<i64>(&format!("XLEN {key}")).await, 1, "each is acknowledged for itself");
    drop(consumer);
    let again = take_all(&mut queue.consumer("next").await.unwrap(), 1).await;
    assert_eq!((ids(&again), again[0].times_delivered), (vec![0], 2));
}

#[tokio::test]
async fn entries_deleted_by_hand_are_not_counted() {
    let config = config(QueueKind::Stream);
    let key = format!("{{{}}}:v1:stream", config.prefix);
    let queue = open_at(&config, shared().url()).await.unwrap();
    queue.push(&messages(0..80)).await.unwrap();
    shared().run::<()>(&format!("XTRIM {key} MAXLEN 2")).await;
    assert_eq!(queue.depth().await.unwrap(), Depth { waiting: 2, in_flight: 0 });
    let mut consumer = queue.consumer("a").await.unwrap();
    assert_eq!(ids(&take_all(&mut consumer, 2).await), [78, 79]);
    assert_eq!(queue.depth().await.unwrap(), Depth { waiting: 0, in_flight: 2 });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_consumers_share_a_dead_fourths_entries_evenly() {
    const COUNT: usize = 3_000;
    let queue = open_at(&config(QueueKind::Stream), shared().url()).await.unwrap();
    queue.push(&messages(0..COUNT as i64)).await.unwrap();
    let mut dead = queue.consumer("fourth").await.unwrap();
    while !dead.take(500, NO_WAIT).await.unwrap().is_empty() {}
    drop(dead);
    let mut consumers = JoinSet::new();
    for number in 0..3 {
        let queue = queue.clone();
        consumers.spawn(async move {
            tokio::time::sleep(Duration::from_millis(100) * number).await;
            let mut consumer = queue.consumer(&format!("worker-{number}")).await.unwrap();
            let mut taken = Vec::new();
            while queue.depth().await.unwrap() != Depth::default() {
                consumer.maintain().await.unwrap();
                let batch = consumer.take(2_000, Duration::from_millis(20)).await.unwrap();
                consumer.acker().ack(&batch).await.unwrap();
                taken.extend(ids(&batch));
            }
            taken
        });
    }
    let shares = consumers.join_all().await;
    let mut all: Vec<i64> = shares.iter().flatten().copied().collect();
    all.sort_unstable();
    assert_eq!(all, (0..COUNT as i64).collect::<Vec<_>>(), "each exactly once");
    for share in &shares {
        let percent = share.len() as f64 * 100.0 / COUNT as f64;
        assert!((28.3..=38.3).contains(&percent), "{:?}", shares.iter().map(Vec::len).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn a_dead_consumer_is_removed_only_when_it_holds_nothing() {
    let config = config(QueueKind::Stream);
    let key = format!("{{{}}}:v1:stream", config.prefix);
    let queue = open_at(&config, shared().url()).await.unwrap();
    queue.push(&messages(0..1_500)).await.unwrap();
    let mut dead = queue.consumer("dead").await.unwrap();
    while !dead.take(500, NO_WAIT).await.unwrap().is_empty() {}
    drop(dead);
    let mut alive = queue.consumer("alive").await.unwrap();
    alive.take(1, NO_WAIT).await.unwrap();
    let mut total = Maintained::default();
    while total.consumers_removed == 0 {
        let maintained = alive.maintain().await.unwrap();
        assert!(maintained.reclaimed <= 1_000, "bounded work");
        total.reclaimed += maintained.reclaimed;
        total.consumers_removed += maintained.consumers_removed;
        assert_eq!(queue.depth().await.unwrap().in_flight, 1_500, "nothing falls out of the group");
    }
    assert_eq!(total, Maintained { reclaimed: 1_500, consumers_removed: 1 });
    let consumers: String =
        format!("{:?}", shared().run::<redis::Value>(&format!("XINFO CONSUMERS {key} workers")).await);
    assert!(consumers.contains("alive") && !consumers.contains("dead"), "{consumers}");
    assert_eq!(shared().run::<Vec<String>>(&format!("SMEMBERS {key}:consumers")).await, ["alive"]);
    assert_eq!(ids(&take_all(&mut alive, 1_500).await), (0..1_500).collect::<Vec<_>>());
}

#[tokio::test]
async fn deliveries_are_counted_across_crashes() {
    let queue = open_at(&config(QueueKind::Stream), shared().url()).await.unwrap();
    queue.push(&messages(0..1)).await.unwrap();
    for times in 1..=3 {
        let mut consumer = queue.consumer(&format!("w{times}")).await.unwrap();
        let taken = take_all(&mut consumer, 1).await;
        assert_eq!(taken[0].times_delivered, times);
        consumer.maintain().await.unwrap();
        assert_eq!(consumer.take(1, NO_WAIT).await.unwrap(), [], "reading again is no delivery");
    }
}

#[tokio::test]
async fn entries_deleted_while_pending_are_dropped_and_told_and_the_length_stays_flat() {
    let config = config(QueueKind::Stream);
    let key = format!("{{{}}}:v1:stream", config.prefix);
    let queue = open_at(&config, shared().url()).await.unwrap();
    queue.push(&messages(0..10)).await.unwrap();
    let mut dead = queue.consumer("dead").await.unwrap();
    assert_eq!(dead.take(10, NO_WAIT).await.unwrap().len(), 10);
    drop(dead);
    shared().run::<()>(&format!("XTRIM {key} MAXLEN 6")).await;
    let mut alive = queue.consumer("alive").await.unwrap();
    let taken = take_all(&mut alive, 6).await;
    assert_eq!(ids(&taken), (4..10).collect::<Vec<_>>());
    assert_eq!(queue.check_loss(0).await.unwrap(), Some(Loss::Entries { count: 4 }));
    assert_eq!(queue.check_loss(0).await.unwrap(), None, "told once");
    alive.acker().ack(&taken).await.unwrap();
    assert_eq!(queue.depth().await.unwrap(), Depth::default());
}

#[tokio::test]
async fn an_acknowledged_stream_takes_no_room() {
    let config = config(QueueKind::Stream);
    let key = format!("{{{}}}:v1:stream", config.prefix);
    let queue = open_at(&config, shared().url()).await.unwrap();
    let mut consumer = queue.consumer("w").await.unwrap();
    for round in 0..20 {
        queue.push(&messages(round * 500..(round + 1) * 500)).await.unwrap();
        let taken = take_all(&mut consumer, 500).await;
        consumer.acker().ack(&taken).await.unwrap();
    }
    assert_eq!(shared().run::<i64>(&format!("XLEN {key}")).await, 0);
    let bytes: i64 = shared().run(&format!("MEMORY USAGE {key} SAMPLES 0")).await;
    assert!(bytes < 10_000, "{bytes} bytes after 10,000 messages");
}

#[tokio::test]
async fn a_group_or_stream_deleted_by_hand_is_made_again_within_the_call() {
    let server = RedisServer::forgetful();
    let config = config(QueueKind::Stream);
    let key = format!("{{{}}}:v1:stream", config.prefix);
    let queue = open_at(&config, server.url()).await.unwrap();
    let mut consumer = queue.consumer("w").await.unwrap();
    queue.push(&messages(0..2)).await.unwrap();
    server.run::<()>(&format!("XGROUP DESTROY {key} workers")).await;
    assert_eq!(ids(&consumer.take(10, NO_WAIT).await.unwrap()), [0, 1], "what was waiting is still taken");
    server.run::<()>(&format!("DEL {key}")).await;
    consumer.maintain().await.unwrap();
    server.run::<()>(&format!("DEL {key}")).await;
    assert_eq!(queue.depth().await.unwrap(), Depth::default());
    server.run::<()>(&format!("DEL {key}")).await;
    queue.push(&messages(2..3)).await.unwrap();
    assert_eq!(ids(&consumer.take(10, NO_WAIT).await.unwrap()), [2]);
}
