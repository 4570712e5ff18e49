//! The examples in docs/api.md: each command is run as it stands, and the answer has the fields that are shown. The
//! table of problems there is whole.

use serde_json::Value;

use super::Api;
use crate::support::postgres;
use crate::support::sql::Sql;

const PAGE: &str = include_str!("../../../docs/api.md");

/// The contents of the fences, in order: "sh" or "json", and the text.
fn fences() -> Vec<(&'static str, &'static str)> {
    let parts: Vec<&str> = PAGE.split("```").collect();
    parts.into_iter().skip(1).step_by(2).filter_map(|fence| fence.split_once('\n')).collect()
}

/// What is shown must be there; what an example leaves out may be as well.
fn assert_shows(shown: &Value, found: &Value) {
    match (shown, found) {
        (Value::Object(shown), Value::Object(found)) => {
            for (key, value) in shown {
                assert_shows(value, found.get(key).unwrap_or_else(|| panic!("no {key} in {found:?}")));
            }
        }
        (Value::Array(shown), Value::Array(found)) => {
            assert_eq!(shown.len(), found.len(), "{found:?}");
            shown.iter().zip(found).for_each(|(shown, found)| assert_shows(shown, found));
        }
        // Times, and what changes by itself.
        (Value::String(time), Value::String(_)) if time.ends_with('Z') => {}
        _ => assert_eq!(shown, found),
    }
}

#[tokio::test]
async fn the_examples_of_the_page_work_as_they_stand() {
    let database = postgres::database().await;
    database.connect().await.run("SELECT outboxd.pause('order.paid')").await;
    let api = Api::on(database, |setup| setup.set("http_token", "a-token-of-the-examples")).await;
    let fences = fences();
    let mut ran = 0;
    for pair in fences.windows(2) {
        let [("sh", command), ("json", shown)] = pair else { continue };
        let script = command.replacen("curl ", "curl --silent --show-error --fail-with-body ", 1);
        let output = tokio::process::Command::new("bash")
            .args(["-euc", &script])
            .env("OUTBOXD", format!("http://{}", api.addr))
            .env("TOKEN", "a-token-of-the-examples")
            .output()
            .await
            .unwrap();
        let answer = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{command}\n{answer}\n{}", String::from_utf8_lossy(&output.stderr));
        let found: Value = serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{error}: {answer}"));
        assert_shows(&serde_json::from_str(shown).expect("the page shows JSON"), &found);
        ran += 1;
    }
    assert_eq!(ran, fences.iter().filter(|(kind, _)| *kind == "sh").count(), "each command shows its answer");
    assert!(ran >= 7);
}

#[test]
fn every_problem_is_on_the_page() {
    let source = include_str!("../../../src/server/problem.rs");
    let table = PAGE.split("## Problems").nth(1).unwrap();
    let listed = table.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let mut listed: Vec<&str> = listed.map(|(name, _)| name).collect();
    let quoted = source.split("StatusCode::").skip(1).filter_map(|rest| rest.split_once(", \"")?.1.split_once('"'));
    let mut known: Vec<&str> = quoted.map(|(name, _)| name).filter(|name| !name.contains(' ')).collect();
    listed.sort_unstable();
    known.sort_unstable();
    known.dedup();
    assert_eq!(listed, known);
}
