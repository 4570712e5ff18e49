//! What only the in-process queue does.

use std::time::Duration;

use outboxd::config::{QueueConfig, QueueKind};
use outboxd::queue::{self, Error};

use super::{config, messages};

#[tokio::test]
async fn a_full_queue_takes_all_of_a_push_or_nothing() {
    let queue = queue::open(&QueueConfig { window: 5, ..config(QueueKind::Memory) }, None).await.unwrap();
    queue.push(&messages(0..8)).await.unwrap();
    assert!(matches!(queue.push(&messages(8..11)).await, Err(Error::Full(_))));
    assert_eq!(queue.depth().await.unwrap().waiting, 8);
    let mut consumer = queue.consumer("a").await.unwrap();
    assert_eq!(consumer.take(1, Duration::ZERO).await.unwrap().len(), 1);
    queue.push(&messages(8..11)).await.unwrap();
}

#[tokio::test]
async fn a_redis_queue_without_a_url_is_refused() {
    for kind in [QueueKind::List, QueueKind::Stream] {
        let Err(Error::Unusable(why)) = queue::open(&config(kind), None).await else { panic!("it must be refused") };
        assert!(why.contains("redis_url"), "{why}");
    }
}
