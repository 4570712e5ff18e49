//! Topics beside each other: new ones, big ones and paused ones.

use std::collections::HashSet;
use std::time::Duration;

use outboxd::queue::{Message, Queue};

use super::Stepped;
use crate::support::postgres;
use crate::support::sql::Sql;

fn notify(topic: &str, rows: i32) -> String {
    format!("SELECT outboxd.notify('{topic}', 'r', '{{}}') FROM generate_series(1, {rows})")
}

/// All that is in the queue, in its order.
async fn taken(queue: &dyn Queue) -> Vec<Message> {
    let mut consumer = queue.consumer("counter").await.unwrap();
    let mut messages = Vec::new();
    loop {
        let taken = consumer.take(1_000, Duration::from_millis(1)).await.unwrap();
        if taken.is_empty() {
            return messages;
        }
        consumer.acker().ack(&taken).await.unwrap();
        messages.extend(taken.into_iter().map(|delivery| delivery.message));
    }
}

#[tokio::test]
async fn topics_that_nobody_has_seen_are_found_by_the_next_poll() {
    let database = postgres::database().await;
    let app = database.connect().await;
    let mut stepped = Stepped::on(&database).await;
    app.run(&notify("known", 10)).await;
    assert_eq!(stepped.until_idle().await, 10);
    app.run(&notify("new", 1)).await;
    assert_eq!(stepped.relay.pass().await.unwrap().pushed, 1);
    app.run("SELECT outboxd.notify('new ' || n, 'r', '{}') FROM generate_series(1, 300) n").await;
    assert_eq!(stepped.relay.pass().await.unwrap().pushed, 300);
    let topics: HashSet<_> = taken(&*stepped.queue).await.into_iter().map(|message| message.topic).collect();
    assert_eq!(topics.len(), 302);
}

#[tokio::test]
async fn a_single_row_is_published_by_one_poll_however_long_another_topics_backlog_is() {
    let database = postgres::database().await;
    let app = database.connect().await;
    let mut stepped = Stepped::on(&database).await;
    app.run(&notify("big", 20_000)).await;
    // Already there when the relay begins; while it goes through the backlog; and when the backlog's part of the window
    // is full.
    for poll in 1..=10 {
        app.run(&notify("small", 1)).await;
        stepped.relay.pass().await.unwrap();
        assert_eq!(app.count("outbox WHERE topic = 'small' AND state = 'published'").await, poll);
    }
    assert!(app.count("outbox WHERE topic = 'big' AND state = 'ready'").await > 15_000);
    let in_front = taken(&*stepped.queue).await.iter().position(|message| *message.topic == *"small").unwrap();
    assert!(in_front <= 500, "{in_front} were in front of the first");
}

#[tokio::test]
async fn two_backlogs_take_turns() {
    let database = postgres::database().await;
    let app = database.connect().await;
    let mut stepped = Stepped::on(&database).await;
    app.run(&notify("a", 20_000)).await;
    app.run(&notify("b", 20_000)).await;
    let mut pushed = (0, 0);
    for _ in 0..20 {
        stepped.relay.pass().await.unwrap();
        let messages = taken(&*stepped.queue).await;
        let of_a = messages.iter().filter(|message| *message.topic == *"a").count();
        pushed = (pushed.0 + of_a, pushed.1 + messages.len() - of_a);
    }
    // The first polls fill themselves with what is oldest.
    assert!(pushed.0 > 2_000 && pushed.1 > 2_000, "{pushed:?}");
}

#[tokio::test]
async fn rows_that_fell_due_take_turns_by_topic_too() {
    let database = postgres::database().await;
    let app = database.connect().await;
    let mut stepped = Stepped::on(&database).await;
    for (topic, rows) in [("big", 5_000), ("small", 1)] {
        app.run(&notify(topic, rows)).await;
    }
    // The one was due last of all.
    app.run("UPDATE outboxd.outbox SET retry_at = now() - interval '1 min' + id * interval '1 ms'").await;
    stepped.relay.pass().await.unwrap();
    let messages = taken(&*stepped.queue).await;
    assert!(messages.iter().any(|message| *message.topic == *"small") && messages.len() > 100, "{}", messages.len());
}

#[tokio::test]
async fn of_a_paused_topic_no_row_is_reserved_and_all_go_when_it_is_resumed() {
    let database = postgres::database().await;
    let app = database.connect().await;
    let mut stepped = Stepped::on(&database).await;
    // One that the relay knows, and one that it has never seen.
    app.run(&notify("known", 1)).await;
    assert_eq!(stepped.until_idle().await, 1);
    for topic in ["known", "unknown"] {
        app.run(&format!("SELECT outboxd.pause('{topic}')")).await;
    }
    stepped.learn_pauses().await;
    for topic in ["known", "unknown"] {
        app.run(&notify(topic, 500)).await;
    }
    // Some were put back long ago, when the pause came between their publication and their claim.
    let put_back =
        "UPDATE outboxd.outbox SET retry_at = now() - interval '3 days' WHERE state = 'ready' AND id % 5 = 0";
    app.run(put_back).await;
    for _ in 0..20 {
        assert_eq!(stepped.relay.pass().await.unwrap().pushed, 0);
    }
    assert_eq!(app.count("outbox WHERE state = 'ready' AND published_at IS NOT NULL").await, 0);
    // It does not keep the others waiting, nor the window full.
    app.run(&notify("other", 100)).await;
    assert_eq!(stepped.until_idle().await, 100);

    for topic in ["known", "unknown"] {
        app.run(&format!("SELECT outboxd.resume('{topic}')")).await;
    }
    stepped.learn_pauses().await;
    stepped.relay.rescan();
    assert_eq!(stepped.until_idle().await, 1_000);
    assert_eq!(app.count("outbox WHERE state = 'ready'").await, 0);
}

#[tokio::test]
async fn more_due_topics_than_a_batch_has_rows_take_turns() {
    let database = postgres::database().await;
    let app = database.connect().await;
    let mut stepped = Stepped::on(&database).await;
    let due = "SELECT outboxd.notify('t' || n, 'r', '{}') FROM generate_series(1, 1200) n;
               UPDATE outboxd.outbox SET retry_at = now() - interval '1 s'";
    app.run(due).await;
    let mut pushed = Vec::new();
    while pushed.iter().sum::<u64>() < 1_200 {
        pushed.push(stepped.relay.pass().await.unwrap().pushed);
        assert!(pushed.len() < 20, "some topics do not get their turn: {pushed:?}");
    }
    assert!(pushed.iter().all(|rows| *rows <= 500), "{pushed:?}");
}
