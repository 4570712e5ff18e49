//! Who may do what: the app its six functions and its INSERT, operators the views and actions, readers the views,
//! nobody through PUBLIC; and no search_path changes what our functions do.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use serde_json::Value;
use tokio_postgres::Client;

use crate::support::postgres::{self, connect};
use crate::support::sql::{refused, run, value, values};

const APP_FUNCTIONS: [&str; 6] = ["notify", "notify_many", "publish", "receive", "respond", "status"];
const ACTIONS: [&str; 21] = [
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
    "stop_bulk",
];

/// Functions that show and change nothing.
const SEEN_BY_ALL: [&str; 5] = ["_count_active", "_count_waiting", "_plural", "status", "why"];

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
    values::<String>(client, &sql).await.into_iter().collect()
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
    assert_eq!(privileges(&client, "outboxd_app").await, wanted);
}

#[tokio::test]
async fn readers_read_every_view_and_can_do_nothing() {
    let database = postgres::database().await;
    let admin = database.connect().await;
    let mut wanted = set(SEEN_BY_ALL.map(|f| format!("function {f} execute")));
    wanted.insert("schema usage".to_string());
    let views: Vec<String> = values(&admin, PUBLIC_VIEWS).await;
    wanted.extend(views.iter().map(|view| format!("relation {view} select")));
    assert_eq!(privileges(&admin, "outboxd_reader").await, wanted);

    run(&admin, "SELECT outboxd.notify('t', 'r', '{}')").await;
    let reader = database.connect_as_member_of("outboxd_reader").await;
    for view in &views {
        run(&reader, &format!("SELECT * FROM outboxd.{view}")).await;
    }
    assert_eq!(value::<i64>(&reader, "SELECT count(*) FROM outboxd.notifications").await, 1);
    for sql in [
        "SELECT outboxd.notify('t', 'r', '{}')",
        "INSERT INTO outboxd.notification_log (topic, recipient, payload) VALUES ('t', 'r', '{}')",
        "SELECT outboxd.cancel(1)",
        "SELECT outboxd.retry(1)",
        "SELECT outboxd.pause('t')",
        "SELECT outboxd.retry_where('{}')",
        "UPDATE outboxd.dead_letters SET recipient = 'x'",
        "DELETE FROM outboxd.dead_letters",
        "SELECT * FROM outboxd.notification_log",
        "SELECT * FROM outboxd.outbox",
        "SELECT * FROM outboxd.audit",
    ] {
        assert_eq!(refused(&reader, sql).await.code, "42501", "{sql}");
    }
}

#[tokio::test]
async fn operators_read_views_and_act_and_nothing_else() {
    let client = postgres::database().await.connect().await;
    let mut wanted = set(ACTIONS.map(|f| format!("function {f} execute")));
    wanted.extend(SEEN_BY_ALL.map(|f| format!("function {f} execute")));
    let views: Vec<String> = values(&client, PUBLIC_VIEWS).await;
    wanted.extend(views.iter().map(|view| format!("relation {view} select")));
    wanted.extend(["relation audit select".to_string(), "schema usage".to_string()]);
    assert_eq!(privileges(&client, "outboxd_operator").await, wanted);
}

#[tokio::test]
async fn public_has_nothing() {
    let database = postgres::database().await;
    let admin = database.connect().await;
    let nobody = format!("nobody_{}", database.name);
    run(&admin, &format!("CREATE ROLE {nobody} LOGIN")).await;
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
        let refusal = refused(&client, sql).await;
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
        run(&app, &format!("SELECT outboxd.notify('t', 'r', {payload}), outboxd.notify('t', 'r', {payload}, {keys})"))
            .await;
    }
    run(&app, r#"SELECT outboxd.notify_many('t', '[{"recipient": "r", "payload": 1}]')"#).await;
    run(&app, "SELECT outboxd.publish('t', 'k', '{}')").await;
    run(&app, "SELECT * FROM outboxd.receive('c', 'm'); SELECT outboxd.respond('c', 'm', '1')").await;
    let id: i64 = value(
        &app,
        "INSERT INTO outboxd.notification_log (topic, recipient, payload, send_at, dedup_key, ordering_key, expires_at, headers)
         VALUES ('t', 'r', '{}', now(), 'd2', 'k', now() + interval '1 h', '{}') RETURNING id",
    )
    .await;
    run(&app, "INSERT INTO outboxd.notification_log (topic, recipient, payload, dedup_key) VALUES ('t', 'r', '{}', 'd2') ON CONFLICT DO NOTHING").await;
    assert!(id > 0);
    assert_eq!(value::<String>(&app, &format!("SELECT outboxd.status({id})")).await, "PENDING");
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
        "SELECT outboxd._hasten('c', 1)",
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
    for relation in values::<String>(&admin, others).await {
        forbidden.push(format!("SELECT FROM outboxd.{relation}"));
    }
    for sql in &forbidden {
        let refusal = refused(&app, sql).await;
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
    assert_eq!(refused(&app, own).await.code, "428C9", "ids are drawn by the server");
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
        assert_eq!(refused(&app, &insert).await.code, "42501", "{insert}");
    }
}

/// The right to write `id` as DEFAULT is the right to override it. It costs whoever draws that number one 23505.
#[tokio::test]
async fn an_app_that_overrides_its_id_makes_one_later_notify_fail_and_no_more() {
    let app = postgres::database().await.connect_as_member_of("outboxd_app").await;
    let first: i64 = value(&app, "SELECT outboxd.notify('t', 'r', '{}')").await;
    run(
        &app,
        &format!("INSERT INTO outboxd.notification_log (id, topic, recipient, payload) OVERRIDING SYSTEM VALUE VALUES ({first} + 1, 't', 'r', '{{}}')"),
    )
    .await;
    assert_eq!(refused(&app, "SELECT outboxd.notify('t', 'r', '{}')").await.code, "23505");
    assert_eq!(value::<i64>(&app, "SELECT outboxd.notify('t', 'r', '{}')").await, first + 2);
    let taken = format!(
        "INSERT INTO outboxd.notification_log (id, topic, recipient, payload) OVERRIDING SYSTEM VALUE VALUES ({first}, 't', 'r', '{{}}')"
    );
    assert_eq!(refused(&app, &taken).await.code, "23505", "a row that exists is out of reach");
}

#[tokio::test]
async fn an_operators_login_reads_each_view_and_takes_each_action() {
    let database = postgres::database().await;
    let admin = database.connect().await;
    run(&admin, "SELECT outboxd.notify('t', 'r', '{}') FROM generate_series(1, 3)").await;
    run(&admin, "UPDATE outboxd.notification_log SET status = 'SENT', finished_at = now() WHERE id = 3; DELETE FROM outboxd.outbox WHERE id = 3").await;
    let operator = database.connect_as_member_of("outboxd_operator").await;
    for view in values::<String>(&admin, PUBLIC_VIEWS).await {
        run(&operator, &format!("SELECT * FROM outboxd.{view}")).await;
    }
    assert_eq!(value::<String>(&operator, "SELECT outboxd.cancel(1)").await, "canceled");
    assert!(value::<bool>(&operator, "SELECT outboxd.retry(1)").await);
    run(&operator, "SELECT outboxd.retry_dead('t'), outboxd.resend(3), outboxd.pause('t'), outboxd.resume('t')").await;
    run(&operator, "SELECT outboxd.pause_channel('c'), outboxd.resume_channel('c'), outboxd.close_circuit('c'), outboxd.probe_channel('c')").await;
    run(&operator, "SELECT outboxd.retry_where('{}', false), outboxd.cancel_where('{\"topic\": \"t\"}', false)").await;
    run(&operator, "SELECT outboxd.retry_where('{}'), outboxd.cancel_where('{}')").await;
    let actor = "SELECT count(*) FROM outboxd.audit WHERE actor = session_user";
    assert_eq!(
        value::<i64>(&operator, actor).await,
        10,
        "each action but a dry run is in the audit, under the login's name"
    );
    for sql in [
        "SELECT * FROM outboxd.notification_log",
        "SELECT * FROM outboxd.outbox",
        "DELETE FROM outboxd.audit",
        "UPDATE outboxd.audit SET actor = 'someone else'",
        "UPDATE outboxd.setting SET audience_rows_max = 2000",
        "UPDATE outboxd.dead_letters SET error = ''",
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
        assert_eq!(refused(&operator, sql).await.code, "42501", "{sql}");
    }
}

/// It writes every name with its schema instead, because setting a search_path costs a tenth of all it does.
const WRITTEN_OUT: [&str; 1] = ["notify"];

#[tokio::test]
async fn every_security_definer_function_pins_its_search_path_or_writes_its_names_out() {
    let client = postgres::database().await.connect().await;
    let loose = "SELECT proname::text FROM pg_proc WHERE pronamespace = 'outboxd'::regnamespace AND prosecdef
                    AND ('search_path=pg_catalog, pg_temp' = ANY (proconfig)) IS NOT TRUE ORDER BY 1";
    assert_eq!(values::<String>(&client, loose).await, WRITTEN_OUT);
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
    run(&admin, HOSTILE).await;
    let app = database.connect_as_member_of("outboxd_app").await;
    let operator = database.connect_as_member_of("outboxd_operator").await;
    for client in [&app, &operator] {
        run(client, "CREATE TEMP TABLE notification_log (id bigint, topic text); CREATE TEMP TABLE outbox (id bigint)")
            .await;
        run(client, "CREATE TEMP TABLE setting (audience_rows_max int); CREATE TEMP TABLE audit (id bigint)").await;
        run(client, "SET search_path = hostile, pg_temp, outboxd, pg_catalog").await;
    }
    let bell = "SELECT setval('outboxd.doorbell', floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)";
    run(&admin, bell).await;
    for form in ["", "::pg_catalog.jsonb", "::pg_catalog.json", "::pg_catalog.text"] {
        // The usual call, one with everything, the same again (its key is taken), and one for later.
        let everything = "send_at => '2020-01-01', dedup_key => 'k', ordering_key => 'o', expires_at => '2099-01-01', headers => '{\"a\": \"b\"}'";
        for more in ["", everything, everything, "send_at => '2099-01-01'"] {
            let comma = if more.is_empty() { "" } else { ", " };
            run(&app, &format!("SELECT outboxd.notify('t', 'r', '{{}}'{form}{comma}{more})")).await;
        }
        // What is refused is refused for its own reason.
        let refusal = refused(&app, &format!("SELECT outboxd.notify('t', '', '{{}}'{form})")).await;
        assert_eq!(refusal.message, "notify: recipient has 0 bytes");
    }
    run(&app, r#"SELECT outboxd.notify_many('t', '[{"recipient": "r", "payload": 1, "dedup_key": "k"}]')"#).await;
    run(&app, "SELECT outboxd.publish('t', 'k', '{}')").await;
    assert_eq!(value::<String>(&app, "SELECT outboxd.status(1)").await, "QUEUED");
    run(&app, "SELECT * FROM outboxd.receive('c', 'm'); SELECT outboxd.respond('c', 'm', '1')").await;
    run(&app, "INSERT INTO outboxd.notification_log (topic, recipient, payload) VALUES ('t', 'plain', '{}')").await;
    run(&operator, "SELECT outboxd.cancel(1), outboxd.retry(1), outboxd.retry_dead('t'), outboxd.pause('t')").await;
    run(&operator, "SELECT * FROM outboxd.queue_state; SELECT * FROM outboxd.notifications").await;
    let counts = "SELECT concat_ws(' ', (SELECT count(*) FROM outboxd.notification_log), (SELECT count(*) FROM outboxd.outbox),
                         (SELECT count(*) FROM outboxd.event), (SELECT count(*) FROM outboxd.inbox), (SELECT count(*) FROM outboxd.audit))";
    // 4 × (usual, later), one with the key, one plain; those for later and the plain one wait.
    assert_eq!(value::<String>(&admin, counts).await, "10 5 1 1 4");
    let written = "SELECT count(*) FROM outboxd.notification_log WHERE topic = 't' AND payload = '{}' AND recipient IN ('r', 'plain')";
    assert_eq!(value::<i64>(&admin, written).await, 10);
}
