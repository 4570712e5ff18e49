//! Statements planned while nothing was live: a vacuum of an empty outbox tells the planner so, and the plan is kept
//! when a million rows come.

use outboxd::store::session::{Purpose, Settings};

use crate::support::postgres;
use crate::support::sql::Sql;

const STATEMENTS: [(&str, &str, &str); 11] = [
    ("admit_heads", include_str!("../../../sql/queries/relay/admit_heads.sql"), "'{t}', '{k}'"),
    ("claim_messages", include_str!("../../../sql/queries/worker/claim_messages.sql"), "'{1}', '{1}', 1, 1, 1"),
    ("drop_sent_work", include_str!("../../../sql/queries/worker/drop_sent_work.sql"), "'{1}'"),
    ("find_locked", include_str!("../../../sql/queries/worker/find_locked.sql"), "'{1}'"),
    ("give_up", include_str!("../../../sql/queries/worker/give_up.sql"), "1, 1, 'e'"),
    ("put_back", include_str!("../../../sql/queries/worker/put_back.sql"), "'{1}', '{1}', '{1}', '{1}', '{o}'"),
    (
        "record_failures",
        include_str!("../../../sql/queries/worker/record_failures.sql"),
        "'{1}', '{1}', '{e}', '{e}', '{1}', '{c}', '{1}', '{r}', '{1}', '{1}', 1, false, '{}', '{now}', '{f}', '{p}'",
    ),
    (
        "record_late_sent",
        include_str!("../../../sql/queries/worker/record_late_sent.sql"),
        "'{1}', '{1}', '{c}', '{1}', '{now}', 1, '{p}'",
    ),
    (
        "record_sent",
        include_str!("../../../sql/queries/worker/record_sent.sql"),
        "'{1}', '{1}', '{c}', '{1}', '{now}', '{p}'",
    ),
    (
        "release_claims",
        include_str!("../../../sql/queries/worker/release_claims.sql"),
        "'{1}', '{1}', '{1}', '{1}', '{o}'",
    ),
    ("renew_leases", include_str!("../../../sql/queries/worker/renew_leases.sql"), "'{1}', '{1}', 1"),
];

#[tokio::test]
async fn plans_made_while_nothing_was_live_do_not_scan_all_when_much_is() {
    let database = postgres::database().await;
    let client = database.connect().await;
    let settings = Settings::new(Purpose::Durable, std::time::Duration::from_secs(30));
    client.run(&settings.for_session()).await;
    for table in ["outbox", "notification_log"] {
        client.run(&format!("VACUUM ANALYZE outboxd.{table}")).await;
    }
    for (name, statement, arguments) in STATEMENTS {
        client.run(&format!("PREPARE {name} AS {statement}")).await;
        let plan: Vec<String> = client.values(&format!("EXPLAIN (COSTS OFF) EXECUTE {name} ({arguments})")).await;
        let scans = plan.windows(2).filter(|lines| lines[0].contains("Index Scan using"));
        for lines in scans {
            assert!(lines[1].contains("Index Cond"), "{name}: {}\n{}", lines[0], plan.join("\n"));
        }
    }
}

#[tokio::test]
async fn why_a_row_waits_is_found_by_probes_whatever_the_statistics_say() {
    let database = postgres::database().await;
    let (pinned, plain) = (database.connect().await, database.connect().await);
    let settings = Settings::new(Purpose::Durable, std::time::Duration::from_secs(30));
    pinned.run(&settings.for_session()).await;
    for table in ["outbox", "notification_log"] {
        pinned.run(&format!("VACUUM ANALYZE outboxd.{table}")).await;
    }
    plain.run("SELECT count(outboxd.notify('t', 'r', '{}')) FROM generate_series(1, 5000)").await;
    let later = "INSERT INTO outboxd.notification_log (topic, recipient, payload) SELECT 't', 'r', '{}' FROM generate_series(1, 5000)";
    plain.run(later).await;
    for client in [&pinned, &plain] {
        let plan: Vec<String> = client.values("EXPLAIN (COSTS OFF) SELECT * FROM outboxd.stuck WHERE id = 4000").await;
        let of_rows = |line: &str| line.contains(" on outbox ") || line.contains(" on notification_log ");
        let scans: Vec<&[String]> = plan.windows(2).filter(|lines| of_rows(&lines[0])).collect();
        assert!(scans.len() > 4, "{}", plan.join("\n"));
        for lines in scans {
            assert!(
                lines[1].contains("Index Cond: (id = ") || lines[1].contains("ordering_key ="),
                "{}",
                plan.join("\n")
            );
        }
    }
}
