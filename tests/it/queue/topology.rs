//! One server, a cluster, Sentinel, TLS and an ACL user: the same queue.

use std::sync::Arc;
use std::time::Duration;

use outboxd::config::{QueueConfig, QueueKind};
use outboxd::queue::{Error, Loss, Queue};

use super::{config, ids, messages, open_at, take_all};
use crate::support::process::free_port;
use crate::support::redis::{RedisCluster, RedisPair, SecureRedis, SecureSentinel, documented_user_rules};
use crate::support::wait::until_ok;

const KINDS: [QueueKind; 2] = [QueueKind::List, QueueKind::Stream];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_carries_messages_from_any_of_its_nodes_and_through_a_moved_slot() {
    let cluster = RedisCluster::start().await;
    for kind in KINDS {
        let config = config(kind);
        let key = format!("{{{}}}", config.prefix);
        let owner = cluster.owner_of(&key).await;
        let other = (owner + 1) % 3;
        // One node is enough, and it need not be the one that holds the keys.
        let queue = open_at(&config, cluster.nodes[other].url()).await.unwrap();
        let mut consumer = queue.consumer("a").await.unwrap();
        let seen = queue.push(&messages(0..10)).await.unwrap().counter;
        assert_eq!(ids(&take_all(&mut consumer, 4).await), [0, 1, 2, 3]);

        assert_eq!(ids(&take_all(&mut consumer, 6).await), (4..10).collect::<Vec<_>>());
        let waiting = tokio::spawn(async move { take_all(&mut consumer, 1).await });
        cluster.nodes[owner].has_blocked_clients(1).await;
        cluster.move_slot(&key, owner, other).await;
        let pushed = queue.push(&messages(10..11)).await.unwrap();
        assert!(pushed.counter > seen, "MOVED is followed within the call");
        assert_eq!(ids(&waiting.await.unwrap()), [10], "a consumer that was waiting finds its way too");
        assert_eq!(queue.check_loss(pushed.counter).await.unwrap(), None, "a moved slot lost nothing");
        assert_eq!(queue.depth().await.unwrap().in_flight, 11);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_cluster_node_is_replaced_by_its_replica() {
    let mut cluster = RedisCluster::start().await;
    let list = config(QueueKind::List);
    let owner = cluster.owner_of(&format!("{{{}}}", list.prefix)).await;
    cluster.add_replica_of(owner).await;
    // One prefix, so that both live on the node that dies.
    let configs = [QueueConfig { kind: QueueKind::Stream, ..list.clone() }, list];
    let hosts = [owner, (owner + 1) % 3].map(|node| format!("127.0.0.1:{}", cluster.nodes[node].port()));
    let mut queues = Vec::new();
    for config in &configs {
        let queue = open_at(config, &format!("redis://{}", hosts.join(","))).await.unwrap();
        let seed_only = open_at(config, &format!("redis://{}", hosts[0])).await.unwrap();
        let consumer = queue.consumer("a").await.unwrap();
        let seen = queue.push(&messages(0..10)).await.unwrap().counter;
        queues.push((queue, seed_only, consumer, seen));
    }
    cluster.nodes[owner].replicated_to(&cluster.nodes[3]).await;

    cluster.nodes[owner].kill();
    for (queue, seed_only, mut consumer, seen) in queues {
        let loss = until_ok("the replica took over", async || queue.check_loss(seen).await).await;
        assert_eq!(loss, None, "everything had reached the replica");
        assert_eq!(ids(&take_all(&mut consumer, 10).await), (0..10).collect::<Vec<_>>());
        until_ok("found although the only configured node is gone", async || seed_only.depth().await).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_that_loses_acknowledged_writes_is_told_as_a_lost_tail() {
    let mut pair = RedisPair::start().await;
    let configs = KINDS.map(config);
    let mut queues = Vec::new();
    for config in &configs {
        let queue = open_at(config, &pair.url()).await.unwrap();
        queue.push(&messages(0..10)).await.unwrap();
        queues.push(queue);
    }
    pair.primary.replicated_to(&pair.replica).await;
    pair.stop_replication().await;
    let mut seen = Vec::new();
    for queue in &queues {
        seen.push(queue.push(&messages(10..15)).await.unwrap().counter);
    }
    pair.primary.kill();
    for ((queue, seen), config) in queues.iter().zip(seen).zip(&configs) {
        // A push that the new primary accepts first must not hide the loss.
        let push = messages(20..40);
        until_ok("the new primary accepts pushes", async || queue.push(&push).await).await;
        let loss = queue.check_loss(seen).await.unwrap();
        let Some(Loss::Tail { seen: known, found }) = loss else { panic!("{:?}: {loss:?}", config.kind) };
        assert_eq!((known, known - found), (seen, 5), "{:?}", config.kind);
        assert_eq!(queue.check_loss(seen).await.unwrap(), None, "told once");
        let mut consumer = queue.consumer("a").await.unwrap();
        let taken = take_all(&mut consumer, 30).await;
        assert_eq!(ids(&taken), (0..10).chain(20..40).collect::<Vec<_>>());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_several_plain_hosts_the_one_that_takes_writes_is_used_also_after_a_failover() {
    let mut pair = RedisPair::start().await;
    let url = format!("redis://127.0.0.1:{},127.0.0.1:{}", pair.replica.port(), pair.primary.port());
    let mut queues = Vec::new();
    for config in KINDS.map(config) {
        let queue = open_at(&config, &url).await.unwrap();
        let seen = queue.push(&messages(0..3)).await.unwrap().counter;
        queues.push((queue, seen));
    }
    pair.primary.replicated_to(&pair.replica).await;
    pair.primary.kill();
    for (queue, seen) in queues {
        let loss = until_ok("the replica took over", async || queue.check_loss(seen).await).await;
        assert_eq!(loss, None, "everything had reached the replica");
        let mut consumer = queue.consumer("a").await.unwrap();
        assert_eq!(ids(&take_all(&mut consumer, 3).await), [0, 1, 2]);
    }
}

async fn until_open(config: &QueueConfig, url: &str) -> Arc<dyn Queue> {
    until_ok("it opens", async || open_at(config, url).await).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sentinel_with_tls_and_a_login_of_its_own_is_found_beside_a_dead_one() {
    let secure = SecureRedis::start(&[]);
    let sentinel = SecureSentinel::start(&secure, "hush");
    let (user, password, ca) = ("worker", "s3cret", secure.ca.display());
    let hosts = format!("127.0.0.1:{},localhost:{}", free_port(), sentinel.port);
    for config in KINDS.map(config) {
        let rules = documented_user_rules(&config.prefix);
        secure.server.run::<()>(&format!("ACL SETUSER {user} on >{password} resetkeys {rules}")).await;
        let url = format!("rediss+sentinel://{user}:{password}@{hosts}/main/0?ca={ca}&sentinel_password=hush");
        // On a busy machine a Sentinel takes its primary for down now and then.
        let queue = until_open(&config, &url).await;
        queue.push(&messages(0..3)).await.unwrap();
        let mut consumer = queue.consumer("a").await.unwrap();
        assert_eq!(ids(&take_all(&mut consumer, 3).await), [0, 1, 2]);

        for (right, wrong, told) in [
            ("/main/", "/mian/", "\"mian\""),
            ("=hush", "=guess", "authentication failed"),
            (":s3cret@", ":guess@", "authentication failed"),
            ("?ca=", "?key=", "cert= and key="),
        ] {
            let error = open_at(&config, &url.replace(right, wrong)).await.unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
            assert!(!["hush", "s3cret", "guess"].iter().any(|secret| error.contains(secret)), "{error}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_and_a_restricted_user_are_enough() {
    let secure = SecureRedis::start(&[]);
    for kind in KINDS {
        let config = config(kind);
        let rules = documented_user_rules(&config.prefix);
        let user = format!("worker-{}", config.prefix);
        secure.server.run::<()>(&format!("ACL SETUSER {user} on >s3cret%/@ {rules}")).await;
        let url = format!("rediss://{user}:s3cret%25%2F%40@localhost:{}?ca={}", secure.tls_port, secure.ca.display());
        let queue = open_at(&config, &url).await.unwrap();
        let seen = queue.push(&messages(0..3)).await.unwrap().counter;
        let mut crashed = queue.consumer("crashed").await.unwrap();
        assert_eq!(crashed.take(3, Duration::from_millis(1)).await.unwrap().len(), 3);
        drop(crashed);
        let mut consumer = queue.consumer("a").await.unwrap();
        let taken = take_all(&mut consumer, 3).await;
        consumer.acker().ack(&taken).await.unwrap();
        assert_eq!(queue.check_loss(seen).await.unwrap(), None);
        queue.depth().await.unwrap();
        consumer.close().await.unwrap();

        let wrong = url.replace("s3cret", "guess");
        assert!(matches!(open_at(&config, &wrong).await, Err(Error::Unusable(_))), "{kind:?}");
        let untrusted = url.split_once('?').unwrap().0;
        assert!(open_at(&config, untrusted).await.is_err(), "a CA nobody vouches for");
        let elsewhere = super::config(kind);
        let error = open_at(&elsewhere, &url).await.unwrap_err();
        assert!(matches!(error, Error::Unusable(_)), "keys outside the user's rules: {error}");
    }
}
