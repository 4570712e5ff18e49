//! Statements planned while nothing was live: a vacuum of an empty outbox tells the planner so, and the plan is kept
//! when a million rows come.

use outboxd::store::session::{Purpose, Settings};

use crate::support::{postgres, sql};

const STATEMENTS: [(&str, &str, &str); 11] = [
    ("admit_heads", include_str!("../../../sql/queries/relay/admit_heads.sql"), "'{t}', '{k}'"),
    ("claim_messages", include_str!("../../../sql/queries/worker/claim_messages.sql"), "'{1}', '{1}', 1, 1"),
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
    sql::run(&client, &settings.for_session()).await;
    for table in ["outbox", "notification_log"] {
        sql::run(&client, &format!("VACUUM ANALYZE outboxd.{table}")).await;
    }
    for (name, statement, arguments) in STATEMENTS {
        sql::run(&client, &format!("PREPARE {name} AS {statement}")).await;
        let plan: Vec<String> =
            sql::values(&client, &format!("EXPLAIN (COSTS OFF) EXECUTE {name} ({arguments})")).await;
        let scans = plan.windows(2).filter(|lines| lines[0].contains("Index Scan using"));
        for lines in scans {
            assert!(lines[1].contains("Index Cond"), "{name}: {}\n{}", lines[0], plan.join("\n"));
        }
    }
}
