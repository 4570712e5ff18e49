//! What only the list backend does.

use std::time::Duration;

use outboxd::config::QueueKind;
use outboxd::queue::Maintained;

use super::{config, ids, messages, open_at, take_all};
use crate::support::redis::shared;
use crate::support::wait::until;

const NO_WAIT: Duration = Duration::from_millis(1);

#[tokio::test]
async fn a_worker_that_starts_again_works_off_its_own_list_first() {
    let config = config(QueueKind::List);
    let queue = open_at(&config, shared().url()).await.unwrap();
    queue.push(&messages(0..5)).await.unwrap();
    let mut before = queue.consumer("w").await.unwrap();
    assert_eq!(ids(&before.take(3, NO_WAIT).await.unwrap()), [0, 1, 2]);
    drop(before);
    let mut again = queue.consumer("w").await.unwrap();
    assert_eq!(ids(&again.take(10, NO_WAIT).await.unwrap()), [0, 1, 2], "by reading, oldest first");
    assert_eq!(ids(&again.take(10, NO_WAIT).await.unwrap()), [3, 4]);
}

#[tokio::test]
async fn a_message_moved_after_the_client_stopped_waiting_is_found_by_reading_again() {
    let config = config(QueueKind::List);
    let queue = open_at(&config, shared().url()).await.unwrap();
    let mut consumer = queue.consumer("w").await.unwrap();
    queue.push(&messages(0..2)).await.unwrap();
    let held = consumer.take(1, NO_WAIT).await.unwrap();
    // What a connection that we gave up on may still do.
    let key = format!("{{{}}}:v1:list", config.prefix);
    let _moved: String = shared().run(&format!("LMOVE {key} {key}:processing:w RIGHT LEFT")).await;
    consumer.maintain().await.unwrap();
    assert_eq!(ids(&consumer.take(10, NO_WAIT).await.unwrap()), [1], "and not what is in flight");
    consumer.acker().ack(&held).await.unwrap();
}

#[tokio::test]
async fn garbage_in_the_own_list_is_removed_when_it_is_read() {
    let config = config(QueueKind::List);
    let queue = open_at(&config, shared().url()).await.unwrap();
    let processing = format!("{{{}}}:v1:list:processing:w", config.prefix);
    let mut connection = shared().connection().await;
    redis::cmd("LPUSH")
        .arg(&processing)
        .arg(b"\xff\xfe")
        .arg("nonsense")
        .arg("5:1:0:0:orders")
        .exec_async(&mut connection)
        .await
        .unwrap();
    let mut consumer = queue.consumer("w").await.unwrap();
    assert_eq!(ids(&consumer.take(10, NO_WAIT).await.unwrap()), [5]);
    assert_eq!(shared().run::<Vec<String>>(&format!("LRANGE {processing} 0 -1")).await, ["5:1:0:0:orders"]);
}

#[tokio::test]
async fn a_dead_workers_list_goes_back_in_order_and_its_traces_go() {
    let config = config(QueueKind::List);
    let queue = open_at(&config, shared().url()).await.unwrap();
    queue.push(&messages(0..2_500)).await.unwrap();
    let mut dead = queue.consumer("dead").await.unwrap();
    while dead.take(500, NO_WAIT).await.unwrap().len() == 500 {}
    drop(dead);
    let mut alive = queue.consumer("alive").await.unwrap();
    let mut total = Maintained::default();
    while total.consumers_removed == 0 {
        let maintained = alive.maintain().await.unwrap();
        assert!(maintained.reclaimed <= 1_000, "bounded work");
        total.reclaimed += maintained.reclaimed;
        total.consumers_removed += maintained.consumers_removed;
    }
    assert_eq!(total, Maintained { reclaimed: 2_500, consumers_removed: 1 });
    let key = format!("{{{}}}:v1:list", config.prefix);
    assert_eq!(shared().run::<Vec<String>>(&format!("SMEMBERS {key}:consumers")).await, ["alive"]);
    assert_eq!(shared().run::<i64>(&format!("EXISTS {key}:processing:dead {key}:alive:dead")).await, 0);
    assert_eq!(ids(&take_all(&mut alive, 2_500).await), (0..2_500).collect::<Vec<_>>());
}

#[tokio::test]
async fn deliveries_are_counted_across_crashes() {
    let config = config(QueueKind::List);
    let queue = open_at(&config, shared().url()).await.unwrap();
    queue.push(&messages(0..1)).await.unwrap();
    for times in 1..=3 {
        let mut consumer = queue.consumer(&format!("w{times}")).await.unwrap();
        let taken = take_all(&mut consumer, 1).await;
        assert_eq!(taken[0].times_delivered, times);
    }
    until("only the last one is left in flight", async || queue.depth().await.unwrap().in_flight == 1).await;
}
