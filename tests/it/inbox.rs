//! receive() and respond(): a consuming service handles a message once, whatever is repeated.

use tokio_postgres::Client;

use crate::support::postgres::{self, Database};
use crate::support::sql::{Refusal, Sql, pid, until_blocked};

const RECEIVE: &str = "SELECT first, response::text FROM outboxd.receive('billing', 'm1')";

async fn receive(client: &Client) -> (bool, Option<String>) {
    let row = client.query_one(RECEIVE, &[]).await.unwrap();
    (row.get(0), row.get(1))
}

#[tokio::test]
async fn the_first_caller_is_first_and_a_repeat_gets_the_response() {
    let client = postgres::database().await.connect().await;
    assert_eq!(receive(&client).await, (true, None));
    assert_eq!(receive(&client).await, (false, None), "received, not yet answered");
    client.run("SELECT outboxd.respond('billing', 'm1', '{\"paid\": true}')").await;
    assert_eq!(receive(&client).await, (false, Some("{\"paid\": true}".into())));
    let other = "SELECT first FROM outboxd.receive('shipping', 'm1')";
    assert!(client.value::<bool>(other).await, "consumers do not share an inbox");
}

#[tokio::test]
async fn a_second_receive_waits_for_the_firsts_transaction() {
    let database = postgres::database().await;
    let (first, second, observer) = (database.connect().await, database.connect().await, database.connect().await);
    let waiter = pid(&second).await;
    for (end, expected) in [("ROLLBACK", (true, None)), ("COMMIT", (false, Some("\"done\"".to_string())))] {
        observer.run("DELETE FROM outboxd.inbox").await;
        first.run("BEGIN").await;
        assert!(receive(&first).await.0);
        first.run("SELECT outboxd.respond('billing', 'm1', '\"done\"')").await;
        let (got, ()) = tokio::join!(receive(&second), async {
            until_blocked(&observer, waiter).await;
            first.run(end).await;
        });
        assert_eq!(got, expected, "{end}");
    }
}

#[tokio::test]
async fn the_first_response_stands() {
    let client = postgres::database().await.connect().await;
    receive(&client).await;
    client.run("SELECT outboxd.respond('billing', 'm1', '1')").await;
    client.run("SELECT outboxd.respond('billing', 'm1', '1')").await;
    let refusal = client.refused("SELECT outboxd.respond('billing', 'm1', '2')").await;
    assert_eq!(refusal.code, "23505");
    assert_eq!(refusal.message, "respond: another response is stored for message 'm1'");
    assert_eq!(refusal.hint, "The first response stands; a repeat must return it.");
    assert_eq!(receive(&client).await, (false, Some("1".into())));
}

#[tokio::test]
async fn no_response_is_a_response_too() {
    let client = postgres::database().await.connect().await;
    receive(&client).await;
    client.run("SELECT outboxd.respond('billing', 'm1', NULL)").await;
    assert_eq!(receive(&client).await, (false, Some("null".into())));
}

#[tokio::test]
async fn bad_calls_are_refused_with_a_code_a_message_and_a_hint() {
    let client = postgres::database().await.connect().await;
    let name_both = "Pass the consuming service's name and the message's id (webhook-id).";
    let not_received = "Call outboxd.receive(consumer, message_id) first, in the same transaction. Logins share receipts where outboxd.share_consumer() says so.";
    let lengths = "A consumer has 1 to 200 bytes, a message_id 1 to 512; hash longer ids.";
    let cases = [
        ("receive(NULL, 'm')", "22004", "receive: consumer must not be NULL", name_both),
        ("receive('c', NULL)", "22004", "receive: message_id must not be NULL", name_both),
        ("receive('', 'm')", "22023", "receive: consumer has 0 bytes, message_id has 1", lengths),
        ("receive('c', repeat('m', 513))", "22023", "receive: consumer has 1 bytes, message_id has 513", lengths),
        ("respond('c', 'unheard of', '1')", "P0002", "respond: 'c' never received message 'unheard of'", not_received),
        ("respond(NULL, 'm', '1')", "P0002", "respond: NULL never received message 'm'", not_received),
    ];
    for (call, code, message, hint) in cases {
        let refusal = client.refused(&format!("SELECT outboxd.{call}")).await;
        let wanted = Refusal { code: code.into(), message: message.into(), hint: hint.into() };
        assert_eq!(refusal, wanted, "{call}");
    }
}

/// Two logins of the app's role on one database.
async fn two_apps(database: &Database) -> (Client, Client) {
    let admin = database.connect().await;
    let name = |app: &str| format!("{app}_{}", database.name);
    for app in ["billing", "stranger"] {
        admin.run(&format!("CREATE ROLE {} LOGIN IN ROLE outboxd_app", name(app))).await;
    }
    let connected = async |app: &str| postgres::connect(&database.url_as(&name(app))).await;
    (connected("billing").await, connected("stranger").await)
}

#[tokio::test]
async fn receipts_belong_to_the_login_and_a_stranger_neither_takes_nor_reads_one() {
    let database = postgres::database().await;
    let (billing, stranger) = two_apps(&database).await;
    assert_eq!(receive(&stranger).await, (true, None));
    stranger.run("SELECT outboxd.respond('billing', 'm1', '\"forged\"')").await;
    assert_eq!(receive(&billing).await, (true, None), "the stranger's call does not make it a repeat");
    billing.run("SELECT outboxd.respond('billing', 'm1', '\"paid\"')").await;
    assert_eq!(receive(&stranger).await, (false, Some("\"forged\"".into())), "nor does it show the response");
    assert_eq!(receive(&billing).await, (false, Some("\"paid\"".into())));
    // What is open in another login's transaction is not waited for.
    stranger.run("BEGIN; SELECT outboxd.receive('billing', 'm2')").await;
    billing.run("SET lock_timeout = '1s'").await;
    assert!(billing.value::<bool>("SELECT first FROM outboxd.receive('billing', 'm2')").await);
}

#[tokio::test]
async fn set_role_and_a_definers_function_do_not_change_whose_receipt_it_is() {
    let database = postgres::database().await;
    let (billing, _) = two_apps(&database).await;
    let admin = database.connect().await;
    let login: String = billing.value("SELECT session_user::text").await;
    let team = format!("team_{}", database.name);
    let created = format!(
        "CREATE ROLE {team} IN ROLE outboxd_app; GRANT {team} TO {login};
                           CREATE FUNCTION handled(id text) RETURNS bool LANGUAGE sql SECURITY DEFINER
                               AS $$ SELECT NOT first FROM outboxd.receive('billing', id) $$"
    );
    admin.run(&created).await;
    assert_eq!(receive(&billing).await, (true, None));
    billing.run(&format!("SET ROLE {team}")).await;
    assert_eq!(receive(&billing).await, (false, None));
    billing.run("RESET ROLE").await;
    assert!(billing.value::<bool>("SELECT handled('m1')").await, "the login's, whoever owns the function");
}

#[tokio::test]
async fn logins_of_a_named_group_share_the_receipts_of_its_consumer() {
    let database = postgres::database().await;
    let (first, second) = two_apps(&database).await;
    let admin = database.connect().await;
    let operator = database.connect_as_member_of("outboxd_operator").await;
    let team = format!("team_{}", database.name);
    let (one, other): (String, String) =
        (first.value("SELECT session_user::text").await, second.value("SELECT session_user::text").await);
    // Both received m1 before; the one that answered stands. m2 was the second's alone.
    receive(&second).await;
    second.run("SELECT outboxd.receive('billing', 'm2')").await;
    receive(&first).await;
    first.run("SELECT outboxd.respond('billing', 'm1', '1')").await;
    admin.run(&format!("CREATE ROLE {team}; GRANT {team} TO {one}, {other}")).await;
    assert_eq!(operator.value::<i64>(&format!("SELECT outboxd.share_consumer('billing', '{team}')")).await, 2);
    assert_eq!(receive(&second).await, (false, Some("1".into())));
    let both = "SELECT first FROM outboxd.receive('billing', 'm2')";
    assert!(!first.value::<bool>(both).await && !second.value::<bool>(both).await);
    assert!(first.value::<bool>("SELECT first FROM outboxd.receive('billing', 'm3')").await);
    assert!(!second.value::<bool>("SELECT first FROM outboxd.receive('billing', 'm3')").await);
    let others = "SELECT first FROM outboxd.receive('shipping', 'm3')";
    assert!(first.value::<bool>(others).await && second.value::<bool>(others).await, "of this consumer alone");
    // Who is no member has receipts of its own.
    let stranger = database.connect_as_member_of("outboxd_app").await;
    assert!(stranger.value::<bool>("SELECT first FROM outboxd.receive('billing', 'm3')").await);
    let again = format!("SELECT outboxd.share_consumer('billing', '{team}')");
    assert_eq!(operator.value::<i64>(&again).await, 0, "said twice, it is said");
    let end = format!("SELECT outboxd.unshare_consumer('billing', '{team}')");
    assert!(operator.value::<bool>(&end).await && !operator.value::<bool>(&end).await);
    assert!(second.value::<bool>("SELECT first FROM outboxd.receive('billing', 'm3')").await);
    let audit = "SELECT string_agg(concat_ws(' ', action, subject, affected, detail->>'role'), ', ' ORDER BY id) FROM outboxd.audit
                  WHERE actor LIKE 'outboxd_operator%'";
    let wanted =
        format!("share_consumer billing 2 {team}, share_consumer billing 0 {team}, unshare_consumer billing 0 {team}");
    assert_eq!(admin.value::<String>(audit).await, wanted);
    let nobody = operator.refused("SELECT outboxd.share_consumer('billing', 'nobody at all')").await;
    assert_eq!((nobody.code.as_str(), nobody.hint.contains("CREATE ROLE")), ("42704", true));
    assert_eq!(first.refused(&again).await.code, "42501", "apps may not say it");
}
