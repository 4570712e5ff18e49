//! What operators do in SQL: cancel, retry, resend, pause. Each action is audited.

use std::future::poll_fn;

use tokio_postgres::{AsyncMessage, Client, NoTls};

use crate::support::postgres::{self, Database};
use crate::support::sql::{Sql, pid, until_blocked};
use crate::support::verdict::assert_rows_are_legal;

async fn notify(client: &Client, more: &str) -> i64 {
    client.value(&format!("SELECT outboxd.notify('t', 'r', '{{\"a\": 1}}'{more})")).await
}

/// "STATUS outbox-state epoch attempts"; no live row: "-".
async fn state_of(client: &Client, id: i64) -> String {
    let sql = format!(
        "SELECT concat_ws(' ', l.status, coalesce(o.state::text, '-'), coalesce(o.epoch, l.epoch), coalesce(o.attempts, l.attempts))
           FROM outboxd.notification_log l LEFT JOIN outboxd.outbox o USING (id) WHERE id = {id}"
    );
    client.value(&sql).await
}

/// What a worker's claim does.
async fn claim(client: &Client, id: i64) {
    let sql =
        "UPDATE outboxd.outbox SET state = 'processing', retry_at = NULL, epoch = epoch + 1, attempts = attempts + 1,
                      instance = 1, lease_until = clock_timestamp() + interval '60 s' WHERE id =";
    client.run(&format!("{sql} {id}")).await;
}

/// What giving up does.
async fn fail(client: &Client, id: i64) {
    let sql = format!(
        "WITH gone AS (DELETE FROM outboxd.outbox WHERE id = {id} RETURNING epoch, attempts)
         UPDATE outboxd.notification_log l SET status = 'FAILED', finished_at = now(), failed_at = now(), error = 'no',
                http_status = 500, channel = 'push', epoch = gone.epoch, attempts = gone.attempts FROM gone WHERE id = {id}"
    );
    client.run(&sql).await;
}

/// What was written down of the actions, which left no row in a state that must not be.
async fn audit(client: &Client) -> Vec<String> {
    assert_rows_are_legal(client).await;
    client.values("SELECT concat_ws(' ', action, subject, affected, detail) FROM outboxd.audit ORDER BY id").await
}

async fn cancel(client: &Client, id: i64) -> String {
    client.value(&format!("SELECT outboxd.cancel({id})")).await
}

#[tokio::test]
async fn cancel_says_what_happened() {
    let client = postgres::database().await.connect().await;
    let pending = notify(&client, ", send_at => now() + interval '1 hour'").await;
    let ready = notify(&client, "").await;
    let published = notify(&client, "").await;
    let changed = format!("UPDATE outboxd.outbox SET state = 'published', published_at = now() WHERE id = {published}");
    client.run(&changed).await;
    let working = notify(&client, "").await;
    claim(&client, working).await;

    for id in [pending, ready, published] {
        assert_eq!(cancel(&client, id).await, "canceled");
        assert_eq!(state_of(&client, id).await, "CANCELED - 0 0");
        assert_eq!(cancel(&client, id).await, "nothing to cancel: it is CANCELED");
    }
    assert_eq!(cancel(&client, working).await, "in flight: no further attempt");
    assert_eq!(state_of(&client, working).await, "QUEUED processing 1 1");
    assert!(client.value::<bool>(&format!("SELECT cancel FROM outboxd.outbox WHERE id = {working}")).await);

    let refusal = client.refused("SELECT outboxd.cancel(4711)").await;
    assert_eq!((refusal.code.as_str(), refusal.message.as_str()), ("P0002", "cancel: there is no notification 4711"));
    assert_eq!(refusal.hint, "Its retention may have passed; see outboxd.notifications.");
    assert_eq!(
        audit(&client).await,
        [
            format!("cancel {pending} 1 {{\"answer\": \"canceled\"}}"),
            format!("cancel {ready} 1 {{\"answer\": \"canceled\"}}"),
            format!("cancel {published} 1 {{\"answer\": \"canceled\"}}"),
            format!("cancel {working} 1 {{\"answer\": \"in flight: no further attempt\"}}"),
        ]
    );
}

#[tokio::test]
async fn a_cancel_that_loses_the_race_to_a_claim_or_an_outcome_says_so() {
    let database = postgres::database().await;
    let (worker, operator, observer) = (database.connect().await, database.connect().await, database.connect().await);
    let waiter = pid(&operator).await;
    let id = notify(&worker, "").await;
    worker.run("BEGIN").await;
    claim(&worker, id).await;
    let (answer, ()) = tokio::join!(cancel(&operator, id), async {
        until_blocked(&observer, waiter).await;
        worker.run("COMMIT").await;
    });
    assert_eq!(answer, "in flight: no further attempt");
    worker.run("BEGIN").await;
    fail(&worker, id).await;
    let (answer, ()) = tokio::join!(cancel(&operator, id), async {
        until_blocked(&observer, waiter).await;
        worker.run("COMMIT").await;
    });
    assert_eq!(answer, "nothing to cancel: it is FAILED");
}

#[tokio::test]
async fn a_cancel_that_loses_the_race_to_the_producer_cancels_the_live_row() {
    let database = postgres::database().await;
    let (producer, operator, observer) = (database.connect().await, database.connect().await, database.connect().await);
    let waiter = pid(&operator).await;
    let id = notify(&producer, ", send_at => now() + interval '1 hour'").await;
    let release = format!(
        "BEGIN; UPDATE outboxd.notification_log SET status = 'QUEUED' WHERE id = {id} AND status = 'PENDING';
         INSERT INTO outboxd.outbox (id, topic) VALUES ({id}, 't')"
    );
    producer.run(&release).await;
    let (answer, ()) = tokio::join!(cancel(&operator, id), async {
        until_blocked(&observer, waiter).await;
        producer.run("COMMIT").await;
    });
    assert_eq!(answer, "canceled");
    assert_eq!(state_of(&observer, id).await, "CANCELED - 0 0");
}

#[tokio::test]
async fn canceling_the_live_row_of_a_key_admits_the_next() {
    let client = postgres::database().await.connect().await;
    let first = notify(&client, ", ordering_key => 'k'").await;
    let second = notify(&client, ", ordering_key => 'k'").await;
    client.run("SELECT outboxd._admit('{t,t,t,t}', ARRAY['k', 'k', NULL, 'nobody''s'])").await;
    assert_eq!(state_of(&client, first).await, "QUEUED ready 0 0");
    client.run("SELECT outboxd._admit('{t}', '{k}')").await;
    assert_eq!(state_of(&client, second).await, "QUEUED blocked 0 0", "one live row a key");
    assert_eq!(cancel(&client, first).await, "canceled");
    assert_eq!(state_of(&client, second).await, "QUEUED ready 0 0");
    assert!(client.value::<bool>("SELECT retry_at <= clock_timestamp() FROM outboxd.outbox").await, "due at once");
}

#[tokio::test]
async fn retry_brings_back_failed_and_canceled_with_a_new_epoch() {
    let client = postgres::database().await.connect().await;
    let failed = notify(&client, "").await;
    claim(&client, failed).await;
    fail(&client, failed).await;
    let canceled = notify(&client, ", ordering_key => 'k'").await;
    cancel(&client, canceled).await;
    assert!(client.value::<bool>(&format!("SELECT outboxd.retry({failed})")).await);
    assert!(client.value::<bool>(&format!("SELECT outboxd.retry({canceled})")).await);
    assert_eq!(
        state_of(&client, failed).await,
        "QUEUED ready 2 1",
        "above every epoch of its first life; attempts go on"
    );
    assert_eq!(state_of(&client, canceled).await, "QUEUED ready 1 0", "alone in its key it has its turn");
    let clean = "notification_log WHERE error IS NULL AND finished_at IS NULL AND failed_at IS NULL";
    assert_eq!(client.count(clean).await, 2);
    assert!(!client.value::<bool>(&format!("SELECT outboxd.retry({failed})")).await, "it is QUEUED already");
    assert_eq!(client.refused("SELECT outboxd.retry(4711)").await.code, "P0002");
    assert_eq!(audit(&client).await[1..], [format!("retry {failed} 1"), format!("retry {canceled} 1")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_operators_who_retry_at_once_one_wins() {
    let database = postgres::database().await;
    let client = database.connect().await;
    let id = notify(&client, "").await;
    fail(&client, id).await;
    let operators = (0..8).map(|_| {
        let database = database.clone();
        tokio::spawn(
            async move { database.connect().await.value::<bool>(&format!("SELECT outboxd.retry({id})")).await },
        )
    });
    let mut wins = 0;
    for operator in operators.collect::<Vec<_>>() {
        wins += usize::from(operator.await.unwrap());
    }
    assert_eq!(wins, 1);
    assert_eq!(state_of(&client, id).await, "QUEUED ready 1 0");
}

#[tokio::test]
async fn retry_dead_takes_the_topics_oldest_first_within_its_bounds() {
    let client = postgres::database().await.connect().await;
    let mut ids = Vec::new();
    for _ in 0..4 {
        let id = notify(&client, "").await;
        fail(&client, id).await;
        ids.push(id);
    }
    let other: i64 = client.value("SELECT outboxd.notify('other', 'r', '{}')").await;
    fail(&client, other).await;
    let age = "UPDATE outboxd.notification_log l SET finished_at = t.at, failed_at = t.at
                 FROM (SELECT id, now() - make_interval(hours => 10 - id::int) AS at FROM outboxd.notification_log) t WHERE t.id = l.id";
    client.run(age).await;

    let live = "SELECT id FROM outboxd.outbox ORDER BY id";
    assert_eq!(client.value::<i64>("SELECT outboxd.retry_dead('t', max => 1)").await, 1);
    assert_eq!(client.values::<i64>(live).await, ids[..1]);
    let since = format!(
        "SELECT outboxd.retry_dead('t', since => (SELECT failed_at FROM outboxd.dead_letters WHERE id = {}))",
        ids[2]
    );
    assert_eq!(client.value::<i64>(&since).await, 2);
    assert_eq!(client.values::<i64>(live).await, [ids[0], ids[2], ids[3]]);
    assert_eq!(client.value::<i64>("SELECT outboxd.retry_dead('t')").await, 1);
    assert_eq!(client.value::<i64>("SELECT outboxd.retry_dead('t')").await, 0);
    assert_eq!(state_of(&client, other).await, "FAILED - 0 0");
    assert_eq!(client.refused("SELECT outboxd.retry_dead(NULL)").await.code, "22004");
    assert!(audit(&client).await[0].starts_with("retry_dead t 1 {\"max\": 1"));
}

#[tokio::test]
async fn resend_makes_a_new_notification_of_a_sent_one_only() {
    let client = postgres::database().await.connect().await;
    let sent = notify(&client, ", dedup_key => 'd', ordering_key => 'k', headers => '{\"h\": \"v\"}'").await;
    let refusal = client.refused(&format!("SELECT outboxd.resend({sent})")).await;
    assert_eq!(refusal.code, "55000");
    assert_eq!(refusal.message, format!("resend: notification {sent} is QUEUED, not SENT"));
    assert_eq!(refusal.hint, "It is still on its way.");
    let changed =
        "UPDATE outboxd.notification_log SET status = 'SENT', finished_at = now(); DELETE FROM outboxd.outbox";
    client.run(changed).await;
    let new: i64 = client.value(&format!("SELECT outboxd.resend({sent})")).await;
    assert_ne!(new, sent);
    let same = format!(
        "SELECT (a.topic, a.recipient, a.payload, a.headers, a.ordering_key) = (b.topic, b.recipient, b.payload, b.headers, b.ordering_key)
                AND b.dedup_key IS NULL AND a.status = 'SENT' AND b.status = 'QUEUED'
           FROM outboxd.notification_log a, outboxd.notification_log b WHERE a.id = {sent} AND b.id = {new}"
    );
    assert!(client.value::<bool>(&same).await);
    assert_eq!(audit(&client).await, [format!("resend {sent} 1 {{\"new_id\": {new}}}")]);
    fail(&client, new).await;
    assert_eq!(client.refused(&format!("SELECT outboxd.resend({new})")).await.hint, "Use outboxd.retry(id).");
}

#[tokio::test]
async fn pause_and_resume_hold_and_free_a_topic() {
    let client = postgres::database().await.connect().await;
    let paused = "SELECT paused_at IS NOT NULL FROM outboxd.topic WHERE name = 'quiz'";
    client.run("SELECT outboxd.pause('quiz'), outboxd.pause('quiz')").await;
    assert!(client.value::<bool>(paused).await, "an unknown topic can be paused before its first row");
    client.run("SELECT outboxd.resume('quiz'), outboxd.resume('quiz')").await;
    assert!(!client.value::<bool>(paused).await);
    assert_eq!(client.refused("SELECT outboxd.pause(NULL)").await.code, "22023");
    assert_eq!(audit(&client).await, ["pause quiz 1", "pause quiz 1", "resume quiz 1"]);
}

/// What a session is told beside the answers.
async fn notices(database: &Database, sql: &str) -> Vec<String> {
    let (client, mut connection) = tokio_postgres::connect(&database.url(), NoTls).await.unwrap();
    let listening = tokio::spawn(async move {
        let mut told = Vec::new();
        while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
            if let AsyncMessage::Notice(notice) = message {
                told.push(notice.message().to_owned());
            }
        }
        told
    });
    client.run(sql).await;
    drop(client);
    listening.await.unwrap()
}

#[tokio::test]
async fn a_pause_of_a_name_that_nobody_knows_holds_and_says_so() {
    let database = postgres::database().await;
    let client = database.connect().await;
    client.run("INSERT INTO outboxd.route VALUES ('quiz', 0, 'push'), ('default', 0, 'sms')").await;
    client.run("SELECT outboxd.notify('news', 'r', '{}'), outboxd.notify('later', 'r', '{}', send_at => now() + interval '1 day')").await;
    let called =
        "SELECT outboxd.notify('again', 'r', '{}'); UPDATE outboxd.outbox SET retry_at = now() WHERE topic = 'again'";
    client.run(called).await;
    let statements = "WITH sent AS (SELECT outboxd.notify('sent', 'r', '{}') AS id)
                      SELECT outboxd.cancel(id) FROM sent; DELETE FROM outboxd.outbox WHERE topic = 'sent'";
    client.run(statements).await;
    let known = "SELECT outboxd.pause(t) FROM unnest(ARRAY['quiz', 'news', 'later', 'again', 'sent']) t; SELECT outboxd.pause_channel('push')";
    assert_eq!(notices(&database, known).await, [""; 0]);
    let topic = notices(&database, "SELECT outboxd.pause('qiuz')").await;
    assert!(topic[0].starts_with("topic 'qiuz' is paused, but nobody knows it"), "{topic:?}");
    let channel = notices(&database, "SELECT outboxd.pause_channel('pusch')").await;
    assert!(channel[0].starts_with("channel 'pusch' is paused, but nobody knows it"), "{channel:?}");
    assert_eq!(client.count("topic WHERE paused_at IS NOT NULL").await, 6);
    client.run("SELECT outboxd.resume('qiuz')").await;
    assert_eq!(notices(&database, "SELECT outboxd.pause('qiuz')").await, topic, "a slip that was undone is still one");
    client.run("SELECT outboxd.resume_channel('pusch'), outboxd.resume_channel('push')").await;
    let listed = "SELECT string_agg(DISTINCT channel, ' ') FROM outboxd.channel_health";
    assert!(!client.value::<String>(listed).await.contains("pusch"), "and is not listed");
}

#[tokio::test]
async fn a_discarded_dead_letter_is_canceled_with_its_error_and_leaves_the_dead() {
    let database = postgres::database().await;
    let client = database.connect().await;
    let dead = notify(&client, "").await;
    claim(&client, dead).await;
    fail(&client, dead).await;
    let live = notify(&client, "").await;
    assert!(client.value::<bool>(&format!("SELECT outboxd.discard({dead})")).await);
    assert_eq!(state_of(&client, dead).await, "CANCELED - 1 1");
    let kept = "SELECT concat_ws(' ', channel, http_status, error, finished_at IS NOT NULL) FROM outboxd.notifications WHERE status = 'CANCELED'";
    assert_eq!(client.value::<String>(kept).await, "push 500 no t");
    assert_eq!(client.count("dead_letters").await, 0);
    for id in [dead, live] {
        assert!(!client.value::<bool>(&format!("SELECT outboxd.discard({id})")).await);
    }
    let told = notices(&database, &format!("SELECT outboxd.discard({live})")).await;
    assert_eq!(
        told,
        [format!("notification {live} is QUEUED: only FAILED ones are discarded (one on its way: outboxd.cancel(id))")]
    );
    assert_eq!(client.refused("SELECT outboxd.discard(4711)").await.code, "P0002");
    assert_eq!(audit(&client).await, [format!("discard {dead} 1 {{\"error\": \"no\"}}")]);
    assert!(client.value::<bool>(&format!("SELECT outboxd.retry({dead})")).await, "it can still be brought back");
    assert_eq!(state_of(&client, dead).await, "QUEUED ready 2 1");
}

#[tokio::test]
async fn pause_channel_keeps_an_open_circuit_as_it_is() {
    let client = postgres::database().await.connect().await;
    client.run("INSERT INTO outboxd.channel_state (channel, held_until, reason, openings) VALUES ('sms', now() + interval '1 h', 'circuit', 3)").await;
    let hold =
        "SELECT concat_ws(' ', paused_at IS NOT NULL, held_until IS NOT NULL, openings) FROM outboxd.channel_state";
    client.run("SELECT outboxd.pause_channel('sms')").await;
    assert_eq!(client.value::<String>(hold).await, "t t 3");
    client.run("SELECT outboxd.resume_channel('sms'), outboxd.resume_channel('unknown')").await;
    assert_eq!(client.value::<String>(hold).await, "f t 3");
    assert_eq!(client.refused("SELECT outboxd.pause_channel('')").await.code, "22023");
    assert_eq!(audit(&client).await, ["pause_channel sms 1", "resume_channel sms 1"]);
}
