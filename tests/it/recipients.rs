//! What was sent to a recipient is found by an index: a search reads what it finds, however long the history, whether
//! or not the table was ever analysed, and with plans that do not know the recipient.

use tokio_postgres::Client;

use crate::support::postgres;
use crate::support::sql::{Sql, rows_read};

/// (a name, what is asked with `$1` as the recipient)
const SEARCHES: [(&str, &str); 4] = [
    ("the_view", "SELECT * FROM outboxd.notifications WHERE recipient = $1::text ORDER BY id DESC LIMIT 20"),
    ("what_failed", "SELECT * FROM outboxd.notifications WHERE recipient = $1::text AND status = 'FAILED'"),
    ("the_command", include_str!("../../sql/queries/cli/find_by_recipient.sql")),
    ("the_api", include_str!("../../sql/queries/api/scan_recipient.sql")),
];

/// The arguments of a search for this recipient, as EXECUTE takes them.
fn arguments(search: &str, recipient: &str) -> String {
    match search {
        "the_command" => format!("('{recipient}', NULL, 20)"),
        "the_api" => format!("(150000, 20, NULL, NULL, NULL, NULL, NULL, '{recipient}', NULL)"),
        _ => format!("('{recipient}')"),
    }
}

/// Searches for a recipient with 20 rows, one with none, and one that had half of all rows and none of the later ones.
async fn assert_searches_read_little(client: &Client, when: &str) {
    for (search, statement) in SEARCHES {
        client.run(&format!("PREPARE {search} AS {statement}")).await;
        for mode in ["force_custom_plan", "force_generic_plan"] {
            client.run(&format!("SET plan_cache_mode = {mode}")).await;
            for recipient in ["user-4711", "nobody", "former"] {
                if (search, recipient) == ("what_failed", "former") {
                    continue; // It reads all that it had.
                }
                let ask = format!("EXECUTE {search}{}", arguments(search, recipient));
                let read = rows_read(client, "notification_log", &ask).await;
                // An entry of an index, and the row.
                assert!(read <= 2 * 20, "{search} of {recipient}, {when}, {mode}: {read} read");
            }
        }
        client.run(&format!("DEALLOCATE {search}")).await;
    }
}

#[tokio::test]
async fn the_view_the_command_and_the_api_find_a_recipient_by_reading_what_they_find() {
    let client = postgres::database().await.connect().await;
    let altered = "ALTER TABLE outboxd.notification_log SET (autovacuum_enabled = off);
        INSERT INTO outboxd.notification_log (topic, recipient, payload, status, finished_at)
        SELECT 't', CASE WHEN n <= 100000 THEN 'former' ELSE 'user-' || n % 5000 END, '{}', 'SENT', now() FROM generate_series(1, 200000) n";
    client.run(altered).await;
    assert_searches_read_little(&client, "never analysed").await;
    client.run("VACUUM ANALYZE outboxd.notification_log").await;
    assert_searches_read_little(&client, "analysed").await;
    assert_eq!(client.count("notifications WHERE recipient = 'user-4711'").await, 20);
}

#[tokio::test]
async fn recipients_are_compared_by_bytes_whatever_the_database_sorts_by() {
    let client = postgres::database().await.connect().await;
    client.run("SELECT outboxd.notify('t', r, '{}') FROM unnest(ARRAY['a', 'B', 'é', 'e\u{301}']) r").await;
    let sorted = "SELECT string_agg(recipient, ' ' ORDER BY recipient) FROM outboxd.notifications";
    assert_eq!(client.value::<String>(sorted).await, "B a e\u{301} é");
    // A column of the app, with the collation of the database, joins.
    client.run("CREATE TEMP TABLE device (token text); INSERT INTO device VALUES ('a'), ('é'), ('E')").await;
    assert_eq!(client.count("notifications n JOIN device d ON d.token = n.recipient").await, 2);
}
