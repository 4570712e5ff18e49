//! How a reading ends: what it may cost the daemon, which ends count as a try, and who is ended later.

use outboxd::store::migrate::{self, Install};
use tokio_postgres::Client;

use crate::support::instance::{Instance, Setup};
use crate::support::postgres::{self, Database};
use crate::support::sql::Sql;
use crate::support::tls::POSTGRES;

use super::{app, create, cron_at, rows_of, run_is};

/// A schedule whose audience is this body of a PL/pgSQL function.
async fn reads(client: &Client, name: &str, body: &str) {
    let cron = cron_at(client, "5 min").await;
    let created = format!(
        "CREATE FUNCTION app.{name}() RETURNS SETOF app.audience LANGUAGE plpgsql AS $$ BEGIN {body} END $$;
         SELECT outboxd.create_schedule('{name}', '{cron}', 'UTC', 't', 'app.{name}')"
    );
    client.run(&created).await;
}

async fn said(client: &Client, schedule: &str) -> String {
    client.value(&format!("SELECT error FROM outboxd.schedule_runs WHERE schedule = '{schedule}'")).await
}

/// Gives a dead instance's lease to the next one soon.
fn quick(setup: &Setup) -> Setup {
    setup.clone().set("worker.heartbeat", "300ms").set("worker.heartbeat_ttl", "1500ms")
}

fn setup(database: &Database) -> Setup {
    quick(&Setup::new(&database.url()).webhook("http://127.0.0.1:9/"))
}

/// In MiB.
fn memory(instance: &Instance, what: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", instance.pid())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix(what)).expect("its memory");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") >> 10
}

/// Each says 64 MiB at once, whatever the session was told to keep to itself.
#[tokio::test]
async fn what_an_audience_says_besides_its_rows_costs_the_daemon_no_memory() {
    let database = postgres::database().await;
    let client = app(&database, 1).await;
    let long = "repeat('x', 64 << 20)";
    for (name, says) in [
        ("notice", format!("PERFORM set_config('client_min_messages', 'notice', true); RAISE NOTICE '%', {long};")),
        ("info", format!("RAISE INFO '%', {long};")),
        ("error", format!("RAISE EXCEPTION '%', {long};")),
        ("hint", format!("RAISE EXCEPTION 'x' USING HINT = {long};")),
    ] {
        reads(&client, name, &says).await;
    }
    let instance = setup(&database).start().await;
    let before = memory(&instance, "VmRSS:");
    for name in ["notice", "info", "error", "hint"] {
        run_is(&client, name, "failed").await;
        let said = said(&client, name).await;
        assert!(said.contains("more than 1 MiB") && said.contains("3 tries"), "{name}: {said}");
    }
    let peak = memory(&instance, "VmHWM:");
    assert!(peak < before + 32, "{before} MiB before, {peak} MiB at most");
}

/// Reads an audience of some length by this URL, and is told of one that says too much.
async fn is_read_by(database: &Database, url: &str) {
    let client = app(database, 3_000).await;
    let _instance = setup(database).database_url(url).start().await;
    create(&client, "s", "").await;
    reads(&client, "loud", "RAISE INFO '%', repeat('x', 2 << 20);").await;
    run_is(&client, "s", "prepared").await;
    assert_eq!(rows_of(&client, "s").await, (3_000, 3_000), "{url}");
    run_is(&client, "loud", "failed").await;
    assert!(said(&client, "loud").await.contains("more than 1 MiB"), "{url}");
}

#[tokio::test]
async fn an_audience_is_read_over_a_socket_of_the_machine() {
    let database = postgres::database().await;
    let dir: String = database.connect().await.value("SHOW unix_socket_directories").await;
    let url = format!("host={dir} port={} user=postgres dbname={}", database.port, database.name);
    is_read_by(&database, &url).await;
}

/// By a password that is bound to the encryption: it goes with the very certificate.
#[tokio::test]
async fn an_audience_is_read_over_an_encrypted_connection() {
    let admin = postgres::connect(&format!("postgres://postgres@127.0.0.1:{}/postgres", POSTGRES.port)).await;
    admin.run("CREATE DATABASE audience").await;
    let database = Database { port: POSTGRES.port, name: "audience".to_owned() };
    let mut owner = database.connect().await;
    migrate::run(&mut owner, Install::Always).await.unwrap();
    owner.run("CREATE ROLE guarded LOGIN PASSWORD 'secret' IN ROLE outboxd_service").await;
    let root = POSTGRES.ca.display();
    let more = format!("sslmode=verify-full&sslrootcert={root}&channel_binding=require");
    is_read_by(&database, &format!("postgres://guarded:secret@localhost:{}/audience?{more}", database.port)).await;
}

/// Such as one that the kernel ends for want of memory.
#[tokio::test]
async fn an_audience_that_takes_its_instance_along_fails_its_run_after_three_tries() {
    let database = postgres::database().await;
    let client = app(&database, 10).await;
    create(&client, "deadly", "").await;
    for try_ in 1..=3 {
        let mut victim = setup(&database).failpoints("before_reading=abort").start().await;
        assert_eq!(victim.exit_code().await, 128 + 6);
        assert_eq!(client.value::<i32>("SELECT attempt FROM outboxd.schedule_run").await, try_);
    }
    let _another = setup(&database).start().await;
    run_is(&client, "deadly", "failed").await;
    let said = said(&client, "deadly").await;
    assert_eq!(said, "the instance that read the audience ended before it had read it; given up after 3 tries");
    assert_eq!(rows_of(&client, "deadly").await, (0, 0));
}

#[tokio::test]
async fn an_instance_that_is_stopped_while_it_reads_uses_up_no_try() {
    let database = postgres::database().await;
    let client = app(&database, 10).await;
    client.run("UPDATE outboxd.setting SET audience_time_max = '20 s'").await;
    reads(&client, "long", "PERFORM pg_sleep(600);").await;
    let instance = setup(&database).start().await;
    client.until("SELECT coalesce(max(tries), 0) = 1 FROM outboxd.schedule_run").await;
    assert_eq!(instance.drain().await, 0);
    let run = "SELECT concat_ws(' ', state, attempt, tries) FROM outboxd.schedule_run";
    assert_eq!(client.value::<String>(run).await, "preparing 1 0");
}

#[tokio::test]
async fn a_reading_that_we_cannot_stage_uses_up_no_try() {
    let database = postgres::database().await;
    let client = app(&database, 10).await;
    drop(database.connect_as_member_of("outboxd_service").await);
    let login = format!("outboxd_service_login_{}", database.name);
    let created = "CREATE FUNCTION app.full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no space' USING ERRCODE = 'disk_full'; END $$;
        CREATE TRIGGER disk BEFORE INSERT ON outboxd.schedule_recipient EXECUTE FUNCTION app.full()";
    client.run(created).await;
    create(&client, "s", "").await;
    let _instance = setup(&database).database_url(&database.url_as(&login)).start().await;
    client.until("SELECT coalesce(max(attempt), 0) >= 5 FROM outboxd.schedule_run").await;
    assert_eq!(client.value::<String>("SELECT state FROM outboxd.schedule_run").await, "preparing");
    client.run("DROP TRIGGER disk ON outboxd.schedule_recipient").await;
    run_is(&client, "s", "prepared").await;
}

/// Meanwhile the session that read them has nothing to do.
#[tokio::test]
async fn rows_whose_staging_takes_long_are_waited_for_and_not_read_again() {
    let database = postgres::database().await;
    let client = app(&database, 10).await;
    let created = "CREATE FUNCTION app.slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(7); RETURN NULL; END $$;
        CREATE TRIGGER slow BEFORE INSERT ON outboxd.schedule_recipient EXECUTE FUNCTION app.slow()";
    client.run(created).await;
    create(&client, "s", "").await;
    let _instance = setup(&database).start().await;
    run_is(&client, "s", "prepared").await;
    assert_eq!(client.value::<i32>("SELECT attempt FROM outboxd.schedule_run").await, 1);
}

const ENDLESS: &str = "LOOP BEGIN PERFORM pg_sleep(3600); EXCEPTION WHEN query_canceled THEN NULL; END; END LOOP;";

/// The backend that reads for this login, which goes on when its instance is killed.
async fn orphan(database: &Database, client: &Client, login: &str) -> i32 {
    client.run("UPDATE outboxd.setting SET audience_time_max = '200 ms'").await;
    reads(client, "endless", ENDLESS).await;
    let victim = setup(database).database_url(&database.url_as(login)).start().await;
    let reading = format!(
        "SELECT count(*) = 1 FROM pg_stat_activity WHERE datname = current_database() AND usename = '{login}'
            AND wait_event = 'PgSleep'"
    );
    client.until(&reading).await;
    let pid = client.value(&reading.replace("count(*) = 1", "pid")).await;
    victim.kill().await;
    client.run("SELECT outboxd.drop_schedule('endless')").await;
    pid
}

#[tokio::test]
async fn a_reading_of_a_former_login_is_ended_by_whoever_may_end_it() {
    let database = postgres::database().await;
    let client = app(&database, 10).await;
    drop(database.connect_as_member_of("outboxd_service").await);
    let former = format!("outboxd_service_login_{}", database.name);
    let orphan = orphan(&database, &client, &former).await;
    let _instance = setup(&database).start().await;
    client.until(&format!("SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = {orphan}")).await;
}

#[tokio::test]
async fn a_reading_of_a_login_that_we_may_not_end_is_told_and_keeps_no_schedule_waiting() {
    let database = postgres::database().await;
    let client = app(&database, 10).await;
    drop(database.connect_as_member_of("outboxd_service").await);
    let orphan = orphan(&database, &client, "postgres").await;
    let login = format!("outboxd_service_login_{}", database.name);
    let mut instance = setup(&database).database_url(&database.url_as(&login)).start().await;
    instance.wait_for_log(&format!("pg_terminate_backend({orphan})")).await;
    create(&client, "s", "").await;
    run_is(&client, "s", "prepared").await;
    client.run(&format!("SELECT pg_terminate_backend({orphan})")).await;
}
