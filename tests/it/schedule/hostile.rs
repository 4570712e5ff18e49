//! Audiences that attack: none of their code runs with other rights than those of outboxd_audience, and nothing that
//! they did outlives their reading.

use std::collections::BTreeSet;

use tokio_postgres::Client;

use crate::support::instance::{Instance, Setup};
use crate::support::pgbouncer::PgBouncer;
use crate::support::postgres::{self, Database};
use crate::support::sql::Sql;

use super::{app, create, cron_at, plain_instance, rows_of, run_is};

/// A schema that somebody owns who may have an audience read, and a trap that tells the server's log who ran into it,
/// whatever is refused, swallowed or rolled back. A deferred trigger runs when its transaction commits, a cursor WITH HOLD
/// is read then.
const EVIL: &str = "
    CREATE SCHEMA evil; GRANT USAGE, CREATE ON SCHEMA evil TO PUBLIC;
    CREATE FUNCTION evil.spring() RETURNS text LANGUAGE plpgsql AS $$
    BEGIN
        RAISE LOG 'evil ran in % as %', current_database(), current_user;
        RETURN 'r';
    END $$;
    CREATE FUNCTION evil.on_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.spring(); RETURN NEW; END $$;
    CREATE TABLE evil.bait (n int); GRANT ALL ON evil.bait TO PUBLIC;
    CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON evil.bait DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION evil.on_commit();
    CREATE PROCEDURE evil.commits() LANGUAGE plpgsql AS $$ BEGIN COMMIT; END $$;
    -- Does one thing, and goes on whatever comes of it.
    CREATE FUNCTION evil.attempt(what text) RETURNS void LANGUAGE plpgsql AS $$
    BEGIN
        EXECUTE what;
    EXCEPTION WHEN OTHERS THEN NULL;
    END $$;";

/// What the audience does before it gives its one row.
const DEEDS: [&str; 13] = [
    "SELECT evil.spring()",
    "INSERT INTO evil.bait VALUES (1)",
    "DECLARE held CURSOR WITH HOLD FOR SELECT evil.spring()",
    "DECLARE c CURSOR FOR SELECT evil.spring()",
    "PREPARE planted AS SELECT evil.spring()",
    "SELECT set_config('search_path', 'evil, pg_catalog', false)",
    "SELECT set_config('client_min_messages', 'debug5', false)",
    "SELECT pg_advisory_lock(4711)",
    "SELECT pg_notify('outboxd', 'hello')",
    "LISTEN outboxd",
    "CREATE TEMP TABLE schedule_run (id bigint)",
    "SET ROLE postgres",
    "CALL evil.commits()",
];

async fn hostile_audience(client: &Client) {
    client.run(EVIL).await;
    let deeds: String = DEEDS.map(|deed| format!("PERFORM evil.attempt($d${deed}$d$); ")).concat();
    let created = format!(
        "CREATE FUNCTION evil.does_all() RETURNS text LANGUAGE plpgsql AS $$ BEGIN {deeds} RETURN 'r'; END $$;
         CREATE VIEW evil.audience AS SELECT evil.does_all() AS recipient, '{{}}'::jsonb AS payload;
         GRANT SELECT ON evil.audience TO outboxd_audience"
    );
    client.run(&created).await;
}

async fn read_it(client: &Client) {
    let cron = cron_at(client, "5 min").await;
    client.run(&format!("SELECT outboxd.create_schedule('evil', '{cron}', 'UTC', 't', 'evil.audience')")).await;
}

async fn assert_only_the_audience_role_ran_it(database: &Database) {
    let ran = format!("evil ran in {} as ", database.name);
    let log = postgres::server().await.log();
    let roles: BTreeSet<&str> = log.lines().filter_map(|line| line.split_once(&ran)).map(|(_, role)| role).collect();
    assert_eq!(roles, BTreeSet::from(["outboxd_audience"]));
}

#[tokio::test]
async fn what_an_audience_queues_holds_or_sets_never_runs_as_the_daemon() {
    let database = postgres::database().await;
    let client = app(&database, 1).await;
    hostile_audience(&client).await;
    drop(database.connect_as_member_of("outboxd_service").await);
    let login = format!("outboxd_service_login_{}", database.name);
    let _instance = Setup::new(&database.url_as(&login)).webhook("http://127.0.0.1:9/").start().await;
    read_it(&client).await;
    run_is(&client, "evil", "prepared").await;
    assert_eq!(rows_of(&client, "evil").await, (1, 1));
    assert_only_the_audience_role_ran_it(&database).await;
}

/// A pooled session goes on to serve others: whoever shares it would meet what the audience left there.
#[tokio::test]
async fn behind_a_pooler_nothing_that_an_audience_left_in_its_session_is_met_again() {
    let database = postgres::database().await;
    let client = app(&database, 1).await;
    hostile_audience(&client).await;
    let pooler = PgBouncer::before(&database).await;
    let setup = Setup::new(&pooler.url(&database)).webhook("http://127.0.0.1:9/").set("database.pooler", true);
    let _instance = setup.start().await;
    read_it(&client).await;
    run_is(&client, "evil", "prepared").await;
    let locks = "SELECT count(*) = 0 FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711
                    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    client.until(locks).await;
    // Each of the sessions that the pooler may lend.
    let mut held = Vec::new();
    for _ in 0..4 {
        let shared = postgres::connect(&pooler.url(&database)).await;
        shared.run("BEGIN").await;
        held.push(shared);
    }
    for shared in &held {
        let said = shared.simple_query("EXECUTE planted").await.unwrap_err();
        assert_eq!(said.as_db_error().unwrap().code().code(), "26000", "no such statement: {said:?}");
    }
    assert_only_the_audience_role_ran_it(&database).await;
}

/// An app whose audience never ends, and may be read for so long.
async fn endless(database: &Database, time_max: &str) -> Client {
    let client = app(database, 10).await;
    let changed = format!(
        "UPDATE outboxd.setting SET audience_time_max = '{time_max}';
         CREATE FUNCTION app.endless() RETURNS SETOF app.audience LANGUAGE plpgsql AS $$
         BEGIN
             LOOP
                 BEGIN
                     PERFORM pg_sleep(3600);
                 EXCEPTION WHEN query_canceled THEN NULL;
                 END;
             END LOOP;
         END $$"
    );
    client.run(&changed).await;
    client
}

/// Three of them, so many as are prepared at a time; the one that does end is prepared beside them.
#[tokio::test]
async fn an_audience_that_does_not_end_is_terminated_and_its_run_fails_after_three_tries() {
    let database = postgres::database().await;
    let client = endless(&database, "300 ms").await;
    let cron = cron_at(&client, "5 min").await;
    for name in ["e1", "e2", "e3"] {
        client.run(&format!("SELECT outboxd.create_schedule('{name}', '{cron}', 'UTC', 't', 'app.endless')")).await;
    }
    create(&client, "good", ", lead => '5 min'").await;
    let _instance = plain_instance(&database).await;
    run_is(&client, "good", "prepared").await;
    for name in ["e1", "e2", "e3"] {
        run_is(&client, name, "failed").await;
        let said = format!("SELECT error FROM outboxd.schedule_runs WHERE schedule = '{name}'");
        let said: String = client.value(&said).await;
        assert!(said.starts_with("the audience took longer than 300ms") && said.contains("3 tries"), "{said}");
    }
    assert_eq!(client.value::<i32>("SELECT max(attempt) FROM outboxd.schedule_run").await, 3);
    let health = "SELECT level = 'critical' AND value LIKE '%e1%' FROM outboxd.health WHERE name = 'schedules'";
    assert!(client.value::<bool>(health).await);
    assert_eq!(client.value::<i64>(READING).await, 0, "no backend goes on");
}

const READING: &str =
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
    AND query LIKE '%outboxd._read_audience%' AND state <> 'idle'";

/// Its instance was killed: whoever has the lease next ends what still goes on.
#[tokio::test]
async fn a_reading_whose_instance_died_is_ended_by_another() {
    let database = postgres::database().await;
    let client = endless(&database, "200 ms").await;
    let cron = cron_at(&client, "5 min").await;
    client.run(&format!("SELECT outboxd.create_schedule('e', '{cron}', 'UTC', 't', 'app.endless')")).await;
    let setup = Setup::new(&database.url()).webhook("http://127.0.0.1:9/");
    let victim = quick(&setup).start().await;
    client.until(&format!("SELECT ({READING}) = 1")).await;
    let orphan = format!("{} LIMIT 1", READING.replace("count(*)", "pid"));
    let orphan: i32 = client.value(&orphan).await;
    victim.kill().await;
    client.run("SELECT outboxd.drop_schedule('e')").await;
    assert_eq!(client.value::<i64>(READING).await, 1, "nothing but us ends it");
    let _second: Instance = quick(&setup).start().await;
    client.until(&format!("SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = {orphan}")).await;
}

fn quick(setup: &Setup) -> Setup {
    setup.clone().set("worker.heartbeat", "300ms").set("worker.heartbeat_ttl", "1500ms")
}

/// What an operator names is looked at in the catalogue, and not touched.
#[tokio::test]
async fn creating_or_altering_a_schedule_plans_and_runs_nothing_of_its_audience() {
    let (database, client, operator) = with_operator().await;
    client.run(EVIL).await;
    let created = "CREATE SEQUENCE evil.ran; GRANT ALL ON SEQUENCE evil.ran TO PUBLIC;
        CREATE FUNCTION evil.fold(text) RETURNS text IMMUTABLE LANGUAGE plpgsql AS $$
            BEGIN PERFORM nextval('evil.ran'); PERFORM set_config('search_path', 'evil, pg_catalog', false); RETURN $1; END $$;
        CREATE VIEW evil.folds AS SELECT evil.fold('r') AS recipient, '{}'::jsonb AS payload WHERE evil.fold('x') = 'x';
        CREATE FUNCTION evil.inlined() RETURNS TABLE (recipient text, payload jsonb) STABLE LANGUAGE sql AS $$
            SELECT evil.fold('r'), '{}'::jsonb WHERE evil.fold('x') = 'x' $$;
        GRANT SELECT ON evil.folds TO outboxd_audience";
    operator.run(created).await;
    for (n, audience) in ["evil.folds", "evil.inlined"].into_iter().enumerate() {
        operator.run(&format!("SELECT outboxd.create_schedule('s{n}', '@daily', 'UTC', 't', '{audience}')")).await;
        operator.run(&format!("SELECT outboxd.alter_schedule('s{n}', lead => '1 min')")).await;
    }
    assert!(!client.value::<bool>("SELECT is_called FROM evil.ran").await, "something was planned or run");
    drop(database);
}

#[tokio::test]
async fn an_audience_of_a_session_is_refused() {
    let (_database, _client, operator) = with_operator().await;
    let created = "CREATE TEMP VIEW v AS SELECT 'r'::text AS recipient, '{}'::jsonb AS payload;
        CREATE FUNCTION pg_temp.f() RETURNS TABLE (recipient text, payload jsonb) LANGUAGE sql AS $$ SELECT 'r', '{}'::jsonb $$;
        GRANT SELECT ON v TO outboxd_audience";
    operator.run(created).await;
    let own: String = operator.value("SELECT nspname::text FROM pg_namespace WHERE oid = pg_my_temp_schema()").await;
    for audience in ["pg_temp.v", "pg_temp.f", "pg_temp.f()", "v", &format!("{own}.v"), &format!("{own}.f")] {
        let refusal =
            operator.refused(&format!("SELECT outboxd.create_schedule('s', '@daily', 'UTC', 't', '{audience}')")).await;
        assert_eq!(refusal.code, "42P01", "{audience}: {refusal:?}");
        assert!(refusal.hint.contains("with its schema"), "{audience}: {refusal:?}");
    }
}

async fn with_operator() -> (Database, Client, Client) {
    let database = postgres::database().await;
    let client = app(&database, 1).await;
    let operator = database.connect_as_member_of("outboxd_operator").await;
    (database, client, operator)
}

/// Whoever sees a dedup_key or when a row is due can try recipients that he has in mind.
#[tokio::test]
async fn neither_the_dedup_key_nor_the_time_of_a_row_tells_its_recipient_to_who_guesses() {
    let database = postgres::database().await;
    let client = app(&database, 50).await;
    create(&client, "s", ", spread => '1 hour'").await;
    let _instance = plain_instance(&database).await;
    run_is(&client, "s", "prepared").await;
    // Whatever is made of the recipient and of what is seen, without a secret.
    let guesses = "notification_log l CROSS JOIN outboxd.schedule_run r CROSS JOIN LATERAL (
             VALUES (l.recipient), (r.id || ':' || l.recipient), (r.schedule || ':' || l.recipient),
                    (r.id || l.recipient), (r.schedule || l.recipient)) g(guess)
         WHERE l.dedup_key LIKE '%' || l.recipient || '%'
            OR l.dedup_key LIKE '%' || left(md5(g.guess), 12) || '%'
            OR l.dedup_key LIKE '%' || left(encode(sha256(convert_to(g.guess, 'UTF8')), 'hex'), 12) || '%'
            OR abs(extract(epoch FROM l.send_at - r.release_at) / 3600
                   - ('x' || left(md5(g.guess), 8))::bit(32)::bigint / 4294967296.0) < 0.000001
            OR abs(extract(epoch FROM l.send_at - r.release_at) / 3600
                   - ('x' || left(encode(sha256(convert_to(g.guess, 'UTF8')), 'hex'), 8))::bit(32)::bigint / 4294967296.0) < 0.000001";
    assert_eq!(client.count(guesses).await, 0, "a guess can be tried");
    let keys =
        "SELECT count(DISTINCT dedup_key) = 50 AND bool_and(dedup_key LIKE 'schedule:%') FROM outboxd.notification_log";
    assert!(client.value::<bool>(keys).await);
}

#[tokio::test]
async fn only_the_daemon_reads_the_secret_behind_the_dedup_keys() {
    let database = postgres::database().await;
    for role in ["outboxd_app", "outboxd_operator", "outboxd_reader", "outboxd_audience"] {
        let login = database.connect_as_member_of(role).await;
        let refusal = login.refused("SELECT * FROM outboxd.schedule_secret").await;
        assert_eq!(refusal.code, "42501", "{role}");
    }
    let service = database.connect_as_member_of("outboxd_service").await;
    let bytes: i32 = service.value("SELECT octet_length(secret) FROM outboxd.schedule_secret").await;
    assert_eq!(bytes, 32);
}
