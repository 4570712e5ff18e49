//! What create_schedule() says of an audience by the catalogue, beside what its reading says.

use crate::support::postgres;
use crate::support::sql::Sql;

use super::{app, cron_at, plain_instance, run_is};

/// SQLSTATE and the end of the message.
type Refusal = (&'static str, &'static str);

/// (definition of `app.a`, its name as an audience, why it is refused; none: it can be read)
const AUDIENCES: &[(&str, &str, Option<Refusal>)] = &[
    ("TABLE app.a (payload jsonb, recipient text)", "app.a", None),
    ("TABLE app.a (recipient int, payload json)", "app.a", None),
    ("TABLE app.a (recipient app.\"Name\", payload app.letter)", "app.a", None),
    ("TABLE app.a (recipient varchar(9), payload varchar)", "app.a", None),
    ("TABLE app.a (recipient text, payload jsonb) PARTITION BY LIST (recipient)", "app.a", None),
    ("MATERIALIZED VIEW app.a AS SELECT * FROM app.audience", "app.a", None),
    ("VIEW app.a AS SELECT * FROM app.audience", "APP.A", None),
    ("VIEW app.a AS SELECT * FROM app.audience", "\"app\" . \"a\"", None),
    ("VIEW app.a AS SELECT recipient, ROW(1)::app.own AS payload FROM app.audience", "app.a", None),
    ("FUNCTION app.a() RETURNS TABLE (recipient text, payload jsonb)", "app.a", None),
    ("FUNCTION app.a(slot timestamptz) RETURNS TABLE (recipient text, payload jsonb)", "app.a(timestamptz)", None),
    ("FUNCTION app.a(slot timestamptz, OUT recipient text, OUT n int, OUT payload jsonb)", "app.a", None),
    ("FUNCTION app.a() RETURNS SETOF app.audience", "app.a()", None),
    ("FUNCTION app.a() RETURNS SETOF app.pair", "app.a", None),
    ("FUNCTION app.a() RETURNS app.pair", "app.a", None),
    ("TABLE app.a (recipient text, payload int)", "app.a", Some(("42804", "app.a.payload is of the type integer"))),
    ("TABLE app.a (recipient text, payload int[])", "app.a", Some(("42804", "app.a.payload is of the type integer[]"))),
    ("TABLE app.a (\"Recipient\" text, payload jsonb)", "app.a", Some(("42703", "app.a has no column recipient"))),
    ("TABLE app.a (n int)", "app.a", Some(("42703", "app.a has no column recipient"))),
    ("SEQUENCE app.a", "app.a", Some(("42809", "app.a is no view, table or function"))),
    ("TYPE app.a AS (recipient text, payload jsonb)", "app.a", Some(("42809", "app.a is no view, table or function"))),
    (
        "PROCEDURE app.a(INOUT recipient text, INOUT payload jsonb)",
        "app.a",
        Some(("42809", "app.a is no view, table or function")),
    ),
    (
        "FUNCTION app.a(n int) RETURNS TABLE (recipient text, payload jsonb)",
        "app.a",
        Some(("42883", "the function app.a wants other arguments")),
    ),
    ("FUNCTION app.a() RETURNS SETOF record", "app.a", Some(("42703", "app.a has no column recipient"))),
    ("FUNCTION app.a() RETURNS text", "app.a", Some(("42703", "app.a has no column recipient"))),
    (
        "FUNCTION app.a() RETURNS TABLE (recipient text, payload bigint)",
        "app.a",
        Some(("42804", "app.a.payload is of the type bigint")),
    ),
    (
        "FUNCTION app.a() RETURNS TABLE (recipient text, payload pg_temp.own)",
        "app.a",
        Some(("42P01", "app.a.payload is of the type own, which belongs to a session")),
    ),
    ("VIEW app.a AS SELECT * FROM app.audience", "a", Some(("42P01", "there is no audience 'a'"))),
    ("VIEW app.a AS SELECT * FROM app.audience", "db.app.a", Some(("42P01", "there is no audience 'db.app.a'"))),
    ("VIEW app.a AS SELECT * FROM app.audience", "app.a x", Some(("42P01", "there is no audience 'app.a x'"))),
    ("VIEW app.a AS SELECT * FROM app.audience", "", Some(("42P01", "there is no audience ''"))),
];

fn plpgsql(body: &str) -> String {
    format!("LANGUAGE plpgsql AS $$ BEGIN {body} END $$")
}

#[tokio::test]
async fn the_catalogue_says_of_an_audience_what_its_reading_would() {
    let database = postgres::database().await;
    let client = app(&database, 1).await;
    let statements = "CREATE DOMAIN app.\"Name\" AS text; CREATE DOMAIN app.letter AS json; CREATE TYPE app.pair AS (recipient text, payload jsonb);
        CREATE TYPE app.own AS (n int); CREATE FUNCTION app.to_jsonb(app.own) RETURNS jsonb LANGUAGE sql AS $$ SELECT jsonb_build_object('n', $1.n) $$;
        CREATE CAST (app.own AS jsonb) WITH FUNCTION app.to_jsonb(app.own);
        CREATE DOMAIN pg_temp.own AS jsonb";
    client.run(statements).await;
    let cron = cron_at(&client, "5 min").await;
    let _instance = plain_instance(&database).await;
    for (n, (definition, audience, refused)) in AUDIENCES.iter().enumerate() {
        let is_routine = definition.starts_with("FUNCTION") || definition.starts_with("PROCEDURE");
        let body = if !is_routine {
            String::new()
        } else if definition.starts_with("FUNCTION") && definition.contains("OUT recipient") {
            plpgsql("recipient := 'r'; payload := '{}';")
        } else if definition.ends_with("RETURNS app.pair") {
            plpgsql("RETURN ('r', '{}')::app.pair;")
        } else if definition.ends_with("RETURNS text") {
            plpgsql("RETURN 'r';")
        } else {
            plpgsql("RETURN;")
        };
        let kind = definition.split(" app.a").next().unwrap();
        client.run(&format!("CREATE {definition} {body}")).await;
        if !is_routine && kind != "TYPE" {
            client.run("GRANT SELECT ON app.a TO outboxd_audience").await;
        }
        let create = format!("SELECT outboxd.create_schedule('s{n}', '{cron}', 'UTC', 't', '{audience}')");
        match refused {
            None => {
                client.run(&create).await;
                run_is(&client, &format!("s{n}"), "prepared").await;
            }
            Some((code, message)) => {
                let refusal = client.refused(&create).await;
                let said = (
                    refusal.code.as_str(),
                    refusal.message.trim_start_matches("create_schedule: the audience cannot be read: "),
                );
                assert_eq!(said, (*code, *message), "{definition}: {refusal:?}");
                // Nor can it be read, if it became so after the schedule was created. What belongs to a session is
                // there for that session alone.
                let reader = database.connect().await;
                let read = format!("SELECT count(*) FROM outboxd._read_audience('{audience}', now(), 1)");
                if !message.contains("session") {
                    reader.refused(&read).await;
                }
            }
        }
        client.run(&format!("DROP {kind} app.a")).await;
    }
}

#[tokio::test]
async fn what_the_audience_role_may_not_read_is_refused_with_the_grant_that_it_lacks() {
    let database = postgres::database().await;
    let client = app(&database, 1).await;
    let created = "CREATE SCHEMA closed; CREATE VIEW closed.v AS SELECT * FROM app.audience; GRANT SELECT ON closed.v TO outboxd_audience;
        CREATE TABLE app.columns (recipient text, payload jsonb, n int); GRANT SELECT (recipient, payload) ON app.columns TO outboxd_audience;
        CREATE TABLE app.half (recipient text, payload jsonb); GRANT SELECT (recipient) ON app.half TO outboxd_audience;
        CREATE FUNCTION app.f() RETURNS SETOF app.audience LANGUAGE sql AS $$ SELECT * FROM app.audience $$;
        REVOKE EXECUTE ON FUNCTION app.f FROM PUBLIC";
    client.run(created).await;
    for (audience, message, grant) in [
        ("closed.v", "outboxd_audience may not use the schema closed", "GRANT SELECT ON closed.v TO"),
        ("app.half", "outboxd_audience may not read the column payload of app.half", "GRANT SELECT ON app.half TO"),
        ("app.f", "outboxd_audience may not execute app.f", "GRANT EXECUTE ON FUNCTION app.f TO"),
    ] {
        let create = format!("SELECT outboxd.create_schedule('s', '@daily', 'UTC', 't', '{audience}')");
        let refusal = client.refused(&create).await;
        assert_eq!(refusal.code, "42501");
        assert_eq!(refusal.message, format!("create_schedule: the audience cannot be read: {message}"));
        assert!(refusal.hint.contains(grant) && refusal.hint.contains("GRANT USAGE ON SCHEMA"), "{refusal:?}");
        client.run(&refusal.hint).await;
        client.run(&format!("BEGIN; {create}; ROLLBACK")).await;
    }
    client.run("SELECT outboxd.create_schedule('c', '@daily', 'UTC', 't', 'app.columns')").await;
}
