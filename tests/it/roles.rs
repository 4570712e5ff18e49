//! Who may do what: the app its six functions and its INSERT, operators the views and actions, readers the views,
//! nobody through PUBLIC; and no search_path changes what our functions do.

use std::collections::BTreeSet;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures_util::SinkExt as _;
use serde_json::Value;
use tokio_postgres::Client;

use crate::support::postgres::{self, connect};
use crate::support::sql::{Refusal, Sql};

const APP_FUNCTIONS: [&str; 6] = ["notify", "notify_many", "publish", "receive", "respond", "status"];
const ACTIONS: [&str; 24] = [
    "adopt",
    "alter_schedule",
    "cancel",
    "cancel_where",
    "close_circuit",
    "create_schedule",
    "discard",
    "discard_where",
    "drop_schedule",
    "pause",
    "pause_channel",
    "pause_schedule",
    "probe_channel",
    "replay_events",
    "resend",
    "resume",
    "resume_channel",
    "resume_schedule",
    "retry",
    "retry_dead",
    "retry_where",
    "share_consumer",
    "stop_bulk",
    "unshare_consumer",
];

/// Functions that show and change nothing: status() and why(), and those that views call as whoever asks.
const SEEN_BY_ALL: [&str; 9] =
    ["_cause", "_count_active", "_count_waiting", "_masked", "_planned_for", "_plural", "_sees_all", "status", "why"];

/// Everything in the schema that `role` may use, as "kind name privilege".
async fn privileges(client: &Client, role: &str) -> BTreeSet<String> {
    let sql = format!(
        "SELECT 'function ' || p.proname || ' execute' FROM pg_proc p
          WHERE p.pronamespace = 'outboxd'::regnamespace AND has_function_privilege('{role}', p.oid, 'EXECUTE')
         UNION ALL
         SELECT 'relation ' || c.relname || ' ' || lower(p) FROM pg_class c,
                unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER']) p
          WHERE c.relnamespace = 'outboxd'::regnamespace AND c.relkind IN ('r', 'v', 'm', 'p')
            AND has_table_privilege('{role}', c.oid, p)
         UNION ALL
         SELECT 'sequence ' || c.relname || ' ' || lower(p) FROM pg_class c, unnest(ARRAY['SELECT', 'USAGE', 'UPDATE']) p
          WHERE c.relnamespace = 'outboxd'::regnamespace AND c.relkind = 'S' AND has_sequence_privilege('{role}', c.oid, p)
         UNION ALL
         SELECT 'column ' || c.relname || '.' || a.attname || ' ' || lower(p)
           FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0, unnest(ARRAY['SELECT', 'INSERT', 'UPDATE']) p
          WHERE c.relnamespace = 'outboxd'::regnamespace AND c.relkind = 'r' AND NOT has_table_privilege('{role}', c.oid, p)
            AND has_column_privilege('{role}', c.oid, a.attnum, p)
         UNION ALL
         SELECT 'schema ' || lower(p) FROM unnest(ARRAY['USAGE', 'CREATE']) p WHERE has_schema_privilege('{role}', 'outboxd', p)"
    );
    client.values::<String>(&sql).await.into_iter().collect()
}

/// The names of the views that are for people.
const PUBLIC_VIEWS: &str = "SELECT relname::text FROM pg_class
    WHERE relnamespace = 'outboxd'::regnamespace AND relkind = 'v' AND left(relname, 1) <> '_'";

fn set(items: impl IntoIterator<Item = String>) -> BTreeSet<String> {
    items.into_iter().collect()
}

#[tokio::test]
async fn the_app_may_do_its_part_and_nothing_else() {
    let client = postgres::database().await.connect().await;
    let written =
        ["id", "topic", "recipient", "payload", "send_at", "dedup_key", "ordering_key", "expires_at", "headers"];
    let returned = ["id", "topic", "created_at", "send_at", "status", "epoch", "attempts"];
    let mut wanted = set(APP_FUNCTIONS.map(|f| format!("function {f} execute")));
    wanted.extend(written.map(|c| format!("column notification_log.{c} insert")));
    wanted.extend(returned.map(|c| format!("column notification_log.{c} select")));
    wanted.insert("schema usage".to_string());
    // The function behind a column's default is called as whoever inserts. It rings if the bell, which the default
    // reads, is to be rung.
    wanted.extend(["function _ring_at_insert execute", "sequence doorbell select"].map(String::from));
    // The trigger that refuses ids of their own asks what the session drew.
    wanted.insert("sequence notification_log_id_seq select".to_string());
    assert_eq!(privileges(&client, "outboxd_app").await, wanted);
}

#[tokio::test]
async fn readers_read_every_view_and_can_do_nothing() {
    let database = postgres::database().await;
    let admin = database.connect().await;
    let mut wanted = set(SEEN_BY_ALL.map(|f| format!("function {f} execute")));
    wanted.insert("schema usage".to_string());
    let views: Vec<String> = admin.values(PUBLIC_VIEWS).await;
    wanted.extend(views.iter().map(|view| format!("relation {view} select")));
    assert_eq!(privileges(&admin, "outboxd_reader").await, wanted);

    admin.run("SELECT outboxd.notify('t', 'r', '{}')").await;
    let reader = database.connect_as_member_of("outboxd_reader").await;
    for view in &views {
        reader.run(&format!("SELECT * FROM outboxd.{view}")).await;
    }
    assert_eq!(reader.count("notifications").await, 1);
    for sql in [
        "SELECT outboxd.notify('t', 'r', '{}')",
        "INSERT INTO outboxd.notification_log (topic, recipient, payload) VALUES ('t', 'r', '{}')",
        "SELECT outboxd.cancel(1)",
        "SELECT outboxd.retry(1)",
        "SELECT outboxd.pause('t')",
        "SELECT outboxd.retry_where('{}')",
        "UPDATE outboxd.dead_letters SET topic = 'x'",
        "DELETE FROM outboxd.dead_letters",
        "SELECT * FROM outboxd.notification_log",
        "SELECT * FROM outboxd.outbox",
        "SELECT * FROM outboxd.audit",
    ] {
        assert_eq!(reader.refused(sql).await.code, "42501", "{sql}");
    }
}

#[tokio::test]
async fn operators_read_views_and_act_and_nothing_else() {
    let client = postgres::database().await.connect().await;
    let mut wanted = set(ACTIONS.map(|f| format!("function {f} execute")));
    wanted.extend(SEEN_BY_ALL.map(|f| format!("function {f} execute")));
    let views: Vec<String> = client.values(PUBLIC_VIEWS).await;
    wanted.extend(views.iter().map(|view| format!("relation {view} select")));
    wanted.extend(["relation audit select".to_string(), "schema usage".to_string()]);
    assert_eq!(privileges(&client, "outboxd_operator").await, wanted);
}

#[tokio::test]
async fn public_has_nothing() {
    let database = postgres::database().await;
    let admin = database.connect().await;
    let nobody = format!("nobody_{}", database.name);
    admin.run(&format!("CREATE ROLE {nobody} LOGIN")).await;
    assert_eq!(privileges(&admin, &nobody).await, BTreeSet::new());
    let client = connect(&database.url_as(&nobody)).await;
    for sql in [
        "SELECT outboxd.notify('t', 'r', '{}')",
        "SELECT * FROM outboxd.notifications",
        "SELECT outboxd.status(1)",
        "SELECT outboxd.cancel(1)",
        "SELECT outboxd.retry_where('{}')",
        "SELECT outboxd.cancel_where('{}', false)",
        "SELECT outboxd.discard(1)",
        "SELECT outboxd.stop_bulk(1)",
        "SELECT * FROM outboxd.health",
        "INSERT INTO outboxd.notification_log (topic, recipient, payload) VALUES ('t', 'r', '{}')",
    ] {
        let refusal = client.refused(sql).await;
        assert_eq!(
            (refusal.code.as_str(), refusal.message.as_str()),
            ("42501", "permission denied for schema outboxd")
        );
    }
}

#[tokio::test]
async fn a_login_of_the_app_can_write_by_every_way_and_is_refused_the_rest() {
    let database = postgres::database().await;
    let app = database.connect_as_member_of("outboxd_app").await;
    for payload in ["'{}'", "'{}'::text", "'{}'::json", "'{}'::jsonb"] {
        let keys = "dedup_key => 'd', ordering_key => 'k'";
        let called = format!("SELECT outboxd.notify('t', 'r', {payload}), outboxd.notify('t', 'r', {payload}, {keys})");
        app.run(&called).await;
    }
    app.run(r#"SELECT outboxd.notify_many('t', '[{"recipient": "r", "payload": 1}]')"#).await;
    app.run("SELECT outboxd.publish('t', 'k', '{}')").await;
    app.run("SELECT * FROM outboxd.receive('c', 'm'); SELECT outboxd.respond('c', 'm', '1')").await;
    let id: i64 = app.value("INSERT INTO outboxd.notification_log (topic, recipient, payload, send_at, dedup_key, ordering_key, expires_at, headers)
         VALUES ('t', 'r', '{}', now(), 'd2', 'k', now() + interval '1 h', '{}') RETURNING id")
    .await;
    app.run("INSERT INTO outboxd.notification_log (topic, recipient, payload, dedup_key) VALUES ('t', 'r', '{}', 'd2') ON CONFLICT DO NOTHING").await;
    assert!(id > 0);
    assert_eq!(app.value::<String>(&format!("SELECT outboxd.status({id})")).await, "PENDING");
    let mut forbidden: Vec<String> = [
        "SELECT * FROM outboxd.notification_log",
        "SELECT recipient FROM outboxd.notification_log",
        "INSERT INTO outboxd.notification_log (topic, recipient, payload) VALUES ('t', 'r', '{}') RETURNING payload",
        "INSERT INTO outboxd.notification_log (topic, recipient, payload, status) VALUES ('t', 'r', '{}', 'QUEUED')",
        "INSERT INTO outboxd.notification_log (topic, recipient, payload, created_at) VALUES ('t', 'r', '{}', now())",
        "UPDATE outboxd.notification_log SET topic = 'x'",
        "DELETE FROM outboxd.notification_log",
        "TRUNCATE outboxd.notification_log",
        "DELETE FROM outboxd.outbox",
        "DELETE FROM outboxd.dead_letters",
        "SELECT nextval('outboxd.notification_log_id_seq')",
        "SELECT setval('outboxd.doorbell', 1)",
        "SELECT outboxd.cancel(1)",
        "SELECT outboxd.retry(1)",
        "SELECT outboxd.retry_dead('t')",
        "SELECT outboxd.resend(1)",
        "SELECT outboxd.pause('t')",
        "SELECT outboxd.resume('t')",
        "SELECT outboxd.pause_channel('c')",
        "SELECT outboxd.resume_channel('c')",
        "SELECT outboxd.close_circuit('c')",
        "SELECT outboxd.probe_channel('c')",
        "SELECT outboxd._hasten('c', '', 1)",
        "SELECT outboxd.retry_where('{}')",
        "SELECT outboxd.cancel_where('{}')",
        "SELECT outboxd.discard(1)",
        "SELECT outboxd.stop_bulk(1)",
        "SELECT outboxd._bulk_start('retry', '{}', NULL, false)",
        "SELECT outboxd._bulk_where('cancel', '{}', false)",
        "SELECT outboxd._bulk_step()",
        "SELECT outboxd._cancel('{1}')",
        "SELECT outboxd._pick_dead('{}', now(), now(), 0, 1)",
        "SELECT outboxd._pick_waiting('{}', now(), 0::smallint, '', now(), 0, 1)",
        "SELECT outboxd._take_snapshot()",
        "SELECT outboxd._count_active()",
        "SELECT outboxd._reject_filter('x', '{}', '{}')",
        "SELECT outboxd._ring()",
        "SELECT outboxd._requeue('{1}')",
        "SELECT outboxd._admit('{t}', '{k}')",
        "SELECT outboxd._items('[]')",
        "SELECT outboxd._reject_headers('x', '{}')",
        "CREATE TABLE outboxd.mine (a int)",
        "CREATE TRIGGER mine AFTER INSERT ON outboxd.notification_log EXECUTE FUNCTION suppress_redundant_updates_trigger()",
    ]
    .map(String::from)
    .into();
    let admin = database.connect().await;
    let others = "SELECT relname::text FROM pg_class WHERE relnamespace = 'outboxd'::regnamespace
                     AND relkind IN ('r', 'v') AND relname <> 'notification_log'";
    for relation in admin.values::<String>(others).await {
        forbidden.push(format!("SELECT FROM outboxd.{relation}"));
    }
    for sql in &forbidden {
        let refusal = app.refused(sql).await;
        assert_eq!(refusal.code, "42501", "{sql}: {refusal:?}");
    }
}

/// They name every column of their model, let the server fill in those they have no value for, and read back what it
/// did.
#[tokio::test]
async fn the_app_can_insert_the_way_orms_do() {
    let app = postgres::database().await.connect_as_member_of("outboxd_app").await;
    let insert = "INSERT INTO outboxd.notification_log
        (id, topic, recipient, payload, send_at, dedup_key, ordering_key, expires_at, headers)
        VALUES (DEFAULT, $1, $2, $3, DEFAULT, $4, $5, $6, $7)
        RETURNING id, topic, created_at, send_at, status::text, epoch, attempts";
    let nothing = None::<&str>;
    let row = app
        .query_one(
            insert,
            &[&"t", &"r", &serde_json::json!({}), &nothing, &nothing, &None::<DateTime<Utc>>, &None::<Value>],
        )
        .await
        .unwrap();
    let at = |column: &str| row.get::<_, DateTime<Utc>>(column);
    assert!(row.get::<_, i64>("id") > 0 && at("send_at") >= at("created_at"));
    assert_eq!((row.get::<_, &str>("topic"), row.get::<_, &str>("status")), ("t", "PENDING"));
    assert_eq!((row.get::<_, i32>("epoch"), row.get::<_, i32>("attempts")), (0, 0));
    let own = "INSERT INTO outboxd.notification_log (id, topic, recipient, payload) VALUES (1, 't', 'r', '{}')";
    assert_eq!(app.refused(own).await.code, "428C9", "ids are drawn by the server");
}

/// What docs/apps.md says of ORMs whose statements need more than the role has.
#[tokio::test]
async fn a_model_with_columns_that_are_not_the_apps_is_refused() {
    let app = postgres::database().await.connect_as_member_of("outboxd_app").await;
    for (columns, values, rest) in [
        ("status", "DEFAULT", ""),
        ("created_at", "DEFAULT", ""),
        ("dedup_key", "'k'", "RETURNING dedup_key"),
        ("dedup_key", "'k'", "RETURNING *"),
        ("dedup_key", "'k'", "ON CONFLICT (topic, dedup_key) WHERE dedup_key IS NOT NULL DO NOTHING"),
        ("dedup_key", "'k'", "ON CONFLICT (id) DO UPDATE SET topic = 'x'"),
    ] {
        let insert = format!(
            "INSERT INTO outboxd.notification_log (topic, recipient, payload, {columns}) VALUES ('t', 'r', '{{}}', {values}) {rest}"
        );
        assert_eq!(app.refused(&insert).await.code, "42501", "{insert}");
    }
}

/// The right to write `id` as DEFAULT is the right to override it, in SQL and by COPY.
#[tokio::test]
async fn an_app_that_chooses_an_id_is_refused_whichever_it_is_and_costs_nobody_else() {
    let database = postgres::database().await;
    let (app, admin) = (database.connect_as_member_of("outboxd_app").await, database.connect().await);
    let choose = |id: i64| {
        format!(
            "INSERT INTO outboxd.notification_log (id, topic, recipient, payload) OVERRIDING SYSTEM VALUE
             VALUES ({id}, 't', 'r', '{{}}')"
        )
    };
    admin.run("SELECT outboxd.notify('t', 'r', '{}') FROM generate_series(1, 5)").await;
    admin.run("DELETE FROM outboxd.notification_log WHERE id <= 4; DELETE FROM outboxd.outbox WHERE id <= 4").await;
    // It has drawn nothing yet: there is nothing that it could write.
    assert_eq!(app.refused(&choose(3)).await.code, "55000");
    let drawn: i64 = app.value("SELECT outboxd.notify('t', 'r', '{}')").await;
    assert_eq!(drawn, 6);
    // Another session draws the next one and has not committed.
    admin.run("BEGIN; SELECT outboxd.notify('t', 'r', '{}')").await;
    for (what, id) in [
        ("used before", 3),
        ("a row that exists", 5),
        ("another session's", 7),
        ("the next one", 8),
        ("far ahead", 1 << 40),
        ("below", -1),
    ] {
        let refusal = app.refused(&choose(id)).await;
        let wanted = ("428C9", format!("id {id} was not drawn by this INSERT"));
        assert_eq!((refusal.code.as_str(), refusal.message), wanted, "{what}");
        assert!(refusal.hint.contains("write DEFAULT"), "{what}: {}", refusal.hint);
    }
    let many = "INSERT INTO outboxd.notification_log (id, topic, recipient, payload) OVERRIDING SYSTEM VALUE
                SELECT n, 't', 'r', '{}' FROM generate_series(100, 200) n ON CONFLICT DO NOTHING";
    assert_eq!(app.refused(many).await.code, "428C9");
    let copied = copy(&app, "id, topic, recipient, payload", "900\tt\tr\t{}\n").await.expect_err("COPY overrides too");
    assert_eq!(copied.code, "428C9");
    admin.run("COMMIT").await;
    for _ in 0..3 {
        admin.run("SELECT outboxd.notify('t', 'r', '{}')").await;
    }
    let ids = "SELECT string_agg(id::text, ' ' ORDER BY id) FROM outboxd.notification_log";
    assert_eq!(admin.value::<String>(ids).await, "5 6 7 8 9 10", "nobody met a number that was taken");
}

#[tokio::test]
async fn ids_come_from_the_server_by_each_way_that_an_app_has_to_write() {
    let database = postgres::database().await;
    let (app, admin) = (database.connect_as_member_of("outboxd_app").await, database.connect().await);
    let columns = "(id, topic, recipient, payload)";
    for rows in [
        "VALUES (DEFAULT, 't', 'r', '{}')",
        "VALUES (DEFAULT, 't', 'r', '{}'), (DEFAULT, 't', 'r', '{}')",
        "OVERRIDING USER VALUE VALUES (7, 't', 'r', '{}')",
    ] {
        app.run(&format!("INSERT INTO outboxd.notification_log {columns} {rows}")).await;
    }
    let sorted = "INSERT INTO outboxd.notification_log (topic, recipient, payload)
                  SELECT 't', 'r' || n, '{}' FROM generate_series(1, 100) n ORDER BY n % 7, n DESC";
    app.run(sorted).await;
    app.run("INSERT INTO outboxd.notification_log (topic, recipient, payload) VALUES ('t', 'r', '{}') ON CONFLICT DO NOTHING").await;
    let chained = "WITH a AS (INSERT INTO outboxd.notification_log (topic, recipient, payload) VALUES ('t', 'r', '{}') RETURNING id)
                   INSERT INTO outboxd.notification_log (topic, recipient, payload) SELECT 't', id::text, '{}' FROM a";
    app.run(chained).await;
    assert_eq!(copy(&app, "topic, recipient, payload", "t\tr\t{}\nt\tr\t{}\n").await.unwrap(), 2);
    let items = r#"[{"recipient": "r", "payload": 1}, {"recipient": "r", "payload": 2}]"#;
    app.run(&format!("SELECT outboxd.notify_many('t', '{items}')")).await;
    assert_eq!(admin.count("notification_log").await, 111);
}

/// What a dump of the data needs, and what an owner who mends something needs.
#[tokio::test]
async fn the_owner_and_the_daemon_bring_ids_of_their_own_into_a_new_session() {
    let database = postgres::database().await;
    let service = database.connect_as_member_of("outboxd_service").await;
    for (client, id) in [(&database.connect().await, 1_000), (&service, 2_000)] {
        let rows = format!("{id}\tt\tr\t{{}}\n{}\tt\tr\t{{}}\n", id + 1);
        assert_eq!(copy(client, "id, topic, recipient, payload", &rows).await.unwrap(), 2);
    }
}

/// Copies rows in, as `\copy` does.
async fn copy(client: &Client, columns: &str, rows: &str) -> Result<u64, Refusal> {
    let statement = format!("COPY outboxd.notification_log ({columns}) FROM STDIN");
    let sink = client.copy_in(&statement).await.map_err(|error| Refusal::of(&error))?;
    let mut sink = std::pin::pin!(sink);
    sink.send(Bytes::copy_from_slice(rows.as_bytes())).await.map_err(|error| Refusal::of(&error))?;
    sink.finish().await.map_err(|error| Refusal::of(&error))
}

#[tokio::test]
async fn an_operators_login_reads_each_view_and_takes_each_action() {
    let database = postgres::database().await;
    let admin = database.connect().await;
    admin.run("SELECT outboxd.notify('t', 'r', '{}') FROM generate_series(1, 3)").await;
    admin.run("UPDATE outboxd.notification_log SET status = 'SENT', finished_at = now() WHERE id = 3; DELETE FROM outboxd.outbox WHERE id = 3").await;
    let operator = database.connect_as_member_of("outboxd_operator").await;
    for view in admin.values::<String>(PUBLIC_VIEWS).await {
        operator.run(&format!("SELECT * FROM outboxd.{view}")).await;
    }
    assert_eq!(operator.value::<String>("SELECT outboxd.cancel(1)").await, "canceled");
    assert!(operator.value::<bool>("SELECT outboxd.retry(1)").await);
    operator.run("SELECT outboxd.retry_dead('t'), outboxd.resend(3), outboxd.pause('t'), outboxd.resume('t')").await;
    operator.run("SELECT outboxd.pause_channel('c'), outboxd.resume_channel('c'), outboxd.close_circuit('c'), outboxd.probe_channel('c')").await;
    operator.run("SELECT outboxd.retry_where('{}', false), outboxd.cancel_where('{\"topic\": \"t\"}', false)").await;
    operator.run("SELECT outboxd.retry_where('{}'), outboxd.cancel_where('{}')").await;
    let actor = "SELECT count(*) FROM outboxd.audit WHERE actor = session_user";
    assert_eq!(
        operator.value::<i64>(actor).await,
        10,
        "each action but a dry run is in the audit, under the login's name"
    );
    for sql in [
        "SELECT * FROM outboxd.notification_log",
        "SELECT * FROM outboxd.outbox",
        "DELETE FROM outboxd.audit",
        "UPDATE outboxd.audit SET actor = 'someone else'",
        "UPDATE outboxd.setting SET audience_rows_max = 2000",
        "UPDATE outboxd.dead_letters SET channel = ''",
        "SELECT outboxd.notify('t', 'r', '{}')",
        "SELECT outboxd._requeue('{1}')",
        "SELECT outboxd._cancel('{1}')",
        "SELECT outboxd._bulk_step()",
        "SELECT outboxd._bulk_start('retry', '{}', NULL, false)",
        "SELECT * FROM outboxd._wait",
        "SELECT * FROM outboxd.statistics_topic",
        "UPDATE outboxd.bulk_action SET actor = 'someone else'",
        "UPDATE outboxd.bulk_actions SET actor = 'someone else'",
    ] {
        assert_eq!(operator.refused(sql).await.code, "42501", "{sql}");
    }
}

/// It writes every name with its schema instead, because setting a search_path costs a tenth of all it does.
const WRITTEN_OUT: [&str; 1] = ["notify"];

#[tokio::test]
async fn every_security_definer_function_pins_its_search_path_or_writes_its_names_out() {
    let client = postgres::database().await.connect().await;
    let loose = "SELECT proname::text FROM pg_proc WHERE pronamespace = 'outboxd'::regnamespace AND prosecdef
                    AND ('search_path=pg_catalog, pg_temp' = ANY (proconfig)) IS NOT TRUE ORDER BY 1";
    assert_eq!(client.values::<String>(loose).await, WRITTEN_OUT);
}

/// What the server would run besides our statements, and who could make it run more.
#[tokio::test]
async fn writing_our_tables_runs_only_what_is_ours_or_the_servers() {
    let client = postgres::database().await.connect().await;
    let foreign = "
        WITH ours AS (SELECT c.oid, c.relname FROM pg_class c WHERE c.relnamespace = 'outboxd'::regnamespace)
        SELECT 'trigger ' || t.tgname FROM pg_trigger t JOIN ours o ON o.oid = t.tgrelid JOIN pg_proc p ON p.oid = t.tgfoid
         WHERE NOT t.tgisinternal AND (p.pronamespace <> 'outboxd'::regnamespace OR t.tgdeferrable)
        UNION ALL
        SELECT 'rule ' || r.rulename FROM pg_rewrite r JOIN ours o ON o.oid = r.ev_class WHERE r.rulename <> '_RETURN'
        UNION ALL
        SELECT 'constraint ' || k.conname FROM pg_constraint k JOIN ours o ON o.oid = k.conrelid WHERE k.condeferrable
        UNION ALL
        SELECT DISTINCT format('function %s of %s', d.refobjid::regprocedure, o.relname)
          FROM ours o
          JOIN LATERAL (SELECT 'pg_class'::regclass AS class, o.oid AS obj
                        UNION ALL SELECT 'pg_attrdef'::regclass, a.oid FROM pg_attrdef a WHERE a.adrelid = o.oid
                        UNION ALL SELECT 'pg_constraint'::regclass, k.oid FROM pg_constraint k WHERE k.conrelid = o.oid
                        UNION ALL SELECT 'pg_policy'::regclass, p.oid FROM pg_policy p WHERE p.polrelid = o.oid) x ON true
          JOIN pg_depend d ON d.classid = x.class AND d.objid = x.obj AND d.refclassid = 'pg_proc'::regclass
          JOIN pg_proc p ON p.oid = d.refobjid
         WHERE p.pronamespace NOT IN ('pg_catalog'::regnamespace, 'outboxd'::regnamespace)
        UNION ALL
        SELECT format('%s may %s %s', r.role, p.privilege, o.relname)
          FROM ours o JOIN pg_class c ON c.oid = o.oid AND c.relkind IN ('r', 'v'),
               unnest(ARRAY['outboxd_app', 'outboxd_operator', 'outboxd_reader', 'outboxd_audience', 'outboxd_service', 'public']) r(role),
               unnest(ARRAY['TRIGGER', 'REFERENCES', 'TRUNCATE']) p(privilege)
         WHERE has_table_privilege(r.role, o.oid, p.privilege)";
    assert_eq!(client.values::<String>(foreign).await, [""; 0]);
}

/// Stand-ins for the operators, functions and types our functions could use; each fails loudly if it is ever called.
const HOSTILE: &str = "
    CREATE SCHEMA hostile;
    DO $do$
    DECLARE
        it record;
    BEGIN
        FOR it IN SELECT o.oid, o.oprname, format_type(o.oprleft, NULL) AS l, format_type(o.oprright, NULL) AS r, format_type(o.oprresult, NULL) AS result
                    FROM pg_catalog.pg_operator o
                   WHERE o.oprnamespace = 'pg_catalog'::regnamespace AND o.oprkind = 'b'
                     AND o.oprleft::regtype::text IN ('text', 'smallint', 'integer', 'bigint', 'double precision', 'numeric', 'boolean', 'jsonb', 'interval', 'timestamp with time zone')
                     AND o.oprright::regtype::text IN ('text', 'smallint', 'integer', 'bigint', 'double precision', 'numeric', 'boolean', 'jsonb', 'interval', 'timestamp with time zone')
        LOOP
            EXECUTE format('CREATE FUNCTION hostile.op_%s(%s, %s) RETURNS %s LANGUAGE plpgsql AS $$ BEGIN RAISE ''hostile operator''; END $$', it.oid, it.l, it.r, it.result);
            EXECUTE format('CREATE OPERATOR hostile.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = hostile.op_%s)', it.oprname, it.l, it.r, it.oid);
        END LOOP;
        FOR it IN SELECT p.proname, pg_get_function_identity_arguments(p.oid) AS args, format_type(p.prorettype, NULL) AS result FROM pg_catalog.pg_proc p
                   WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind = 'f' AND NOT p.proretset
                     AND p.proname IN ('octet_length', 'length', 'isfinite', 'now', 'clock_timestamp', 'date_part', 'extract', 'pg_notify', 'jsonb_typeof', 'lower',
                                       'current_setting', 'pg_sequence_last_value', 'nextval', 'abs', 'jsonb_path_exists', 'timestamptz_le', 'timestamptz_lt',
                                       'int4lt', 'int4gt', 'int4pl', 'texteq', 'range_contains_elem', 'jsonb', 'text', 'int4', 'int8', 'timestamptz')
                     AND NOT EXISTS (SELECT FROM unnest(p.proargtypes) t WHERE t::regtype::text IN ('internal', 'cstring'))
        LOOP
            EXECUTE format('CREATE FUNCTION hostile.%I(%s) RETURNS %s LANGUAGE plpgsql AS $$ BEGIN RAISE ''hostile function''; END $$', it.proname, it.args, it.result);
        END LOOP;
    END $do$;
    CREATE FUNCTION hostile.pg_column_size(jsonb) RETURNS int LANGUAGE plpgsql AS $$ BEGIN RAISE 'hostile function'; END $$;
    CREATE DOMAIN hostile.text AS pg_catalog.text CHECK (VALUE OPERATOR(pg_catalog.=) 'nothing');
    CREATE DOMAIN hostile.jsonb AS pg_catalog.jsonb CHECK (VALUE IS NULL);
    CREATE DOMAIN hostile.json AS pg_catalog.json CHECK (VALUE IS NULL);
    CREATE DOMAIN hostile.timestamptz AS pg_catalog.timestamptz CHECK (VALUE IS NULL);
    CREATE DOMAIN hostile.int4range AS pg_catalog.int4range CHECK (VALUE IS NULL);
    CREATE DOMAIN hostile.bool AS pg_catalog.bool CHECK (VALUE IS NULL);
    CREATE DOMAIN hostile.int8 AS pg_catalog.int8 CHECK (VALUE IS NULL);
    CREATE DOMAIN hostile.regclass AS pg_catalog.regclass CHECK (VALUE IS NULL);
    CREATE TYPE hostile.status AS ENUM ('hostile'); CREATE TYPE hostile.state AS ENUM ('hostile');
    CREATE TABLE hostile.setting AS SELECT 1 AS audience_rows_max;
    GRANT USAGE ON SCHEMA hostile TO PUBLIC";

#[tokio::test]
async fn a_hostile_search_path_does_not_change_what_our_functions_do() {
    let database = postgres::database().await;
    let admin = database.connect().await;
    admin.run(HOSTILE).await;
    let app = database.connect_as_member_of("outboxd_app").await;
    let operator = database.connect_as_member_of("outboxd_operator").await;
    for client in [&app, &operator] {
        let created =
            "CREATE TEMP TABLE notification_log (id bigint, topic text); CREATE TEMP TABLE outbox (id bigint)";
        client.run(created).await;
        client.run("CREATE TEMP TABLE setting (audience_rows_max int); CREATE TEMP TABLE audit (id bigint)").await;
        client.run("SET search_path = hostile, pg_temp, outboxd, pg_catalog").await;
    }
    admin.run("SELECT setval('outboxd.doorbell', floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)").await;
    for form in ["", "::pg_catalog.jsonb", "::pg_catalog.json", "::pg_catalog.text"] {
        // The usual call, one with everything, the same again (its key is taken), and one for later.
        let everything = "send_at => '2020-01-01', dedup_key => 'k', ordering_key => 'o', expires_at => '2099-01-01', headers => '{\"a\": \"b\"}'";
        for more in ["", everything, everything, "send_at => '2099-01-01'"] {
            let comma = if more.is_empty() { "" } else { ", " };
            app.run(&format!("SELECT outboxd.notify('t', 'r', '{{}}'{form}{comma}{more})")).await;
        }
        // What is refused is refused for its own reason.
        let refusal = app.refused(&format!("SELECT outboxd.notify('t', '', '{{}}'{form})")).await;
        assert_eq!(refusal.message, "notify: recipient has 0 bytes");
    }
    app.run(r#"SELECT outboxd.notify_many('t', '[{"recipient": "r", "payload": 1, "dedup_key": "k"}]')"#).await;
    app.run("SELECT outboxd.publish('t', 'k', '{}')").await;
    assert_eq!(app.value::<String>("SELECT outboxd.status(1)").await, "QUEUED");
    app.run("SELECT * FROM outboxd.receive('c', 'm'); SELECT outboxd.respond('c', 'm', '1')").await;
    app.run("INSERT INTO outboxd.notification_log (topic, recipient, payload) VALUES ('t', 'plain', '{}')").await;
    operator.run("SELECT outboxd.cancel(1), outboxd.retry(1), outboxd.retry_dead('t'), outboxd.pause('t')").await;
    operator.run("SELECT * FROM outboxd.queue_state; SELECT * FROM outboxd.notifications").await;
    let counts = "SELECT concat_ws(' ', (SELECT count(*) FROM outboxd.notification_log), (SELECT count(*) FROM outboxd.outbox),
                         (SELECT count(*) FROM outboxd.event), (SELECT count(*) FROM outboxd.inbox), (SELECT count(*) FROM outboxd.audit))";
    // 4 × (usual, later), one with the key, one plain; those for later and the plain one wait.
    assert_eq!(admin.value::<String>(counts).await, "10 5 1 1 4");
    let written = "notification_log WHERE topic = 't' AND payload = '{}' AND recipient IN ('r', 'plain')";
    assert_eq!(admin.count(written).await, 10);
}

/// What an app's data look like, everywhere they may come to stand: no reader sees any of it.
const MARKED: &str = r#"
    INSERT INTO outboxd.route VALUES ('default', 0, 'push');
    SELECT outboxd.notify('t', 'xxMARK-recipient', '{"MARK": 1}', dedup_key => 'for MARK-key 1', ordering_key => 'by MARK-key 1', headers => '{"h": "MARK"}');
    SELECT outboxd.notify('t', 'MARK', '{"MARK": 1}', ordering_key => 'by MARK-key 1');
    UPDATE outboxd.notification_log SET created_at = now() - interval '5 min', send_at = now() - interval '5 min';
    UPDATE outboxd.outbox SET state = 'published', published_at = now() - interval '5 min' WHERE id = 1;
    INSERT INTO outboxd.attempt (notification_id, token, outcome, error, response, channel)
    VALUES (1, 1, 'failed', 'whether it was accepted cannot be told: MARK', 'MARK', 'push');
    INSERT INTO outboxd.notification_log (topic, recipient, payload, status, finished_at, failed_at, error, channel)
    VALUES ('t', 'xxMARK-recipient', '{"MARK": 1}', 'FAILED', now(), now(), 'not accepted: MARK', 'push');
    INSERT INTO outboxd.bulk_action (action, filter, actor, matched) VALUES ('retry', '{"recipient": "a MARK of it", "error_like": "MARK%", "topic": "t"}', 'a', 1);
    INSERT INTO outboxd.statistics_channel (minute, channel, origin, failed, last_error, last_error_at)
    VALUES (date_trunc('minute', now()), 'push', '', 1, 'not accepted: MARK', now());
    SELECT outboxd.create_schedule('s', '0 9 * * *', 'UTC', 't', 'public.people');
    INSERT INTO outboxd.schedule_run (schedule_id, version, schedule, topic, audience, spread, slot, release_at, state, error, ended_at)
    VALUES (1, 1, 's', 't', 'public.people', '0', now(), now(), 'failed', 'invalid input syntax for type json: MARK', now());
    INSERT INTO outboxd.event (topic, key, payload) VALUES ('t', 'MARK', '{"MARK": 1}');
    INSERT INTO outboxd.event_outbox (event_id, topic) VALUES (1, 't')"#;

#[tokio::test]
async fn readers_see_neither_payloads_nor_answers_nor_whole_recipients_in_any_view() {
    let database = postgres::database().await;
    let admin = database.connect().await;
    admin.run("CREATE VIEW public.people AS SELECT ''::text AS recipient, '{}'::jsonb AS payload; GRANT SELECT ON public.people TO outboxd_audience").await;
    admin.run(MARKED).await;
    let reader = database.connect_as_member_of("outboxd_reader").await;
    let operator = database.connect_as_member_of("outboxd_operator").await;
    let mut marked = BTreeSet::new();
    for view in admin.values::<String>(PUBLIC_VIEWS).await {
        let rows = format!("SELECT row_to_json(v)::text FROM outboxd.{view} v");
        let shown: String = reader.values::<String>(&rows).await.concat();
        assert!(!shown.contains("MARK"), "{view} shows readers {shown}");
        if operator.values::<String>(&rows).await.concat().contains("MARK") {
            marked.insert(view);
        }
    }
    let wanted = [
        "attempts",
        "bulk_actions",
        "channel_health",
        "dead_letters",
        "notifications",
        "schedule_runs",
        "schedules",
        "stuck",
    ];
    assert_eq!(marked, set(wanted.map(String::from)), "operators see all of it");
    let shown =
        "SELECT concat_ws(' | ', recipient, dedup_key, ordering_key, error) FROM outboxd.notifications ORDER BY id";
    let masked = [
        "xx****nt | fo**** 1 | by**** 1 | whether it was accepted cannot be told",
        "**** | by**** 1",
        "xx****nt | not accepted",
    ];
    assert_eq!(reader.values::<String>(shown).await, masked);
    let filter = "SELECT filter::text FROM outboxd.bulk_actions";
    assert_eq!(reader.value::<String>(filter).await, r#"{"topic": "t", "recipient": "a ****it"}"#);
}

#[tokio::test]
async fn a_readers_search_compares_what_it_sees_and_an_operators_the_recipient() {
    let database = postgres::database().await;
    database.connect().await.run("SELECT outboxd.notify('t', '+821012345678', '{\"a\": 1}')").await;
    let (reader, operator) = (
        database.connect_as_member_of("outboxd_reader").await,
        database.connect_as_member_of("outboxd_operator").await,
    );
    for (condition, by_reader, by_operator) in [
        ("recipient = '+821012345678'", 0, 1),
        ("recipient LIKE '%1012345678'", 0, 1),
        ("recipient = '+8****78'", 1, 0),
        ("payload @> '{\"a\": 1}'", 0, 1),
        ("payload IS NULL", 1, 0),
    ] {
        let sql = format!("SELECT count(*) FROM outboxd.notifications WHERE {condition}");
        let found = (reader.value::<i64>(&sql).await, operator.value::<i64>(&sql).await);
        assert_eq!(found, (by_reader, by_operator), "{condition}");
    }
}

/// A pool whose sessions change their role: what was prepared as one is run as the other.
#[tokio::test]
async fn a_plan_made_for_an_operator_shows_a_reader_nothing() {
    let database = postgres::database().await;
    let admin = database.connect().await;
    admin.run("SELECT outboxd.notify('t', '+821012345678', '{}')").await;
    let login = format!("pool_{}", database.name);
    admin.run(&format!("CREATE ROLE {login} LOGIN NOINHERIT IN ROLE outboxd_reader, outboxd_operator")).await;
    let pool = connect(&database.url_as(&login)).await;
    pool.run("SET ROLE outboxd_operator; SET plan_cache_mode = force_generic_plan").await;
    pool.run("PREPARE listed AS SELECT recipient FROM outboxd.notifications").await;
    assert_eq!(pool.value::<String>("EXECUTE listed").await, "+821012345678");
    pool.run("SET ROLE outboxd_reader").await;
    let refusal = pool.refused("EXECUTE listed").await;
    assert_eq!((refusal.code.as_str(), refusal.hint.contains("DISCARD PLANS")), ("0A000", true), "{refusal:?}");
    pool.run("DISCARD PLANS").await;
    assert_eq!(pool.value::<String>("EXECUTE listed").await, "+8****78");
}
