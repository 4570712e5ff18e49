//! What is told as a loss, by whom, and how often.

use outboxd::config::{QueueConfig, QueueKind};
use outboxd::queue::Loss;

use super::{config, messages, open_at};
use crate::support::redis::{RedisServer, shared, unique_prefix};
use crate::support::wait::until_ok;

const KINDS: [QueueKind; 2] = [QueueKind::List, QueueKind::Stream];

#[tokio::test]
async fn an_empty_redis_has_lost_nothing_unless_something_was_pushed_before() {
    for kind in KINDS {
        let config = config(kind);
        let queue = open_at(&config, shared().url()).await.unwrap();
        assert_eq!(queue.check_loss(0).await.unwrap(), None);
        let seen = queue.push(&messages(0..1)).await.unwrap().counter;
        assert_eq!(open_at(&config, shared().url()).await.unwrap().check_loss(seen).await.unwrap(), None);

        let elsewhere = QueueConfig { prefix: unique_prefix(), ..config };
        let moved = open_at(&elsewhere, shared().url()).await.unwrap();
        assert_eq!(moved.check_loss(seen).await.unwrap(), Some(Loss::All), "another prefix holds none of it");
        assert_eq!(moved.check_loss(seen).await.unwrap(), None, "told once");
        let next = moved.push(&messages(1..2)).await.unwrap().counter;
        assert!(next > seen, "the highest counter over all instances is always of the newest queue");
        assert_eq!(moved.check_loss(next).await.unwrap(), None);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_during_pushes_tells_no_loss() {
    for kind in KINDS {
        let queue = open_at(&config(kind), shared().url()).await.unwrap();
        let pushes = async {
            for id in 0..400 {
                queue.push(&messages(id..id + 1)).await.unwrap();
            }
        };
        let checks = async {
            for _ in 0..400 {
                assert_eq!(queue.check_loss(0).await.unwrap(), None);
            }
        };
        tokio::join!(pushes, checks);
    }
}

#[tokio::test]
async fn two_queues_used_side_by_side_do_not_keep_reporting_each_other() {
    for kind in KINDS {
        let old = open_at(&config(kind), shared().url()).await.unwrap();
        let new = open_at(&config(kind), shared().url()).await.unwrap();
        let (mut seen, mut losses) = (0, 0);
        for id in 0..10 {
            for queue in [&old, &new] {
                losses += queue.check_loss(seen).await.unwrap().iter().len();
                seen = queue.push(&messages(id..id + 1)).await.unwrap().counter.max(seen);
            }
        }
        assert!(losses <= 2, "{losses} losses told by two processes");
    }
}

#[tokio::test]
async fn a_tail_lost_by_a_restart_is_told_by_those_who_pushed_it_and_by_those_who_did_not() {
    for kind in KINDS {
        let mut server = RedisServer::forgetful();
        let config = config(kind);
        let witness = open_at(&config, server.url()).await.unwrap();
        let pusher = open_at(&config, server.url()).await.unwrap();
        let saved = pusher.push(&messages(0..10)).await.unwrap().counter;
        server.run::<()>("SAVE").await;
        let seen = pusher.push(&messages(10..17)).await.unwrap().counter;
        assert_eq!(seen, saved + 7, "one per message");
        server.kill();
        server.restart();

        // Pushes that come before anyone has checked must not hide it.
        let push = messages(30..60);
        let late = until_ok("a push is accepted", async || witness.push(&push).await).await.counter;
        let tail = Some(Loss::Tail { seen, found: saved });
        assert_eq!(witness.check_loss(seen).await.unwrap(), tail, "told by one who pushed none of it");
        let told = until_ok("the pusher is connected again", async || pusher.check_loss(late).await).await;
        assert_eq!(told, tail, "told by the one who pushed it although nobody mentions it any more");
        for queue in [&witness, &pusher] {
            assert_eq!(queue.check_loss(late).await.unwrap(), None, "told once");
            assert_eq!(queue.check_loss(seen).await.unwrap(), None, "told once");
        }
        let fresh = open_at(&config, server.url()).await.unwrap();
        assert_eq!(fresh.check_loss(late).await.unwrap(), None, "long repaired when this process started");
    }
}
