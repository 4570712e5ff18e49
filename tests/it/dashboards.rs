//! What is shipped for Grafana and Prometheus speaks only of metrics, labels, views and columns that exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use outboxd::telemetry::catalog::METRICS;
use serde_json::Value;

use crate::support::postgres;
use crate::support::sql::Sql;

const RULES: &str = "deploy/prometheus/outboxd.rules.yml";
const DASHBOARD: &str = "deploy/grafana/outboxd.json";

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// Every `outboxd_…` in an expression; a histogram's series under the name of the histogram.
fn metrics(expression: &str) -> BTreeSet<String> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let names = words.filter(|word| word.starts_with("outboxd_"));
    names.map(|name| name.strip_suffix("_bucket").unwrap_or(name).to_owned()).collect()
}

fn assert_exist(place: &str, expression: &str) {
    for name in metrics(expression) {
        assert!(METRICS.iter().any(|metric| metric.name == name), "{place} speaks of {name}, which nobody counts");
    }
}

fn rules() -> Vec<(String, String)> {
    let text = read(RULES);
    let field = |line: &str, name: &str| line.trim().trim_start_matches("- ").strip_prefix(name).map(str::to_owned);
    let names = text.lines().filter_map(|line| field(line, "alert: "));
    let expressions = text.lines().filter_map(|line| field(line, "expr: "));
    names.zip(expressions).collect()
}

/// The alerts that fire, once they have lasted, of those that are about the value of one series: `max(metric) > 1`.
pub fn firing(value: impl Fn(&str) -> Option<f64>) -> Vec<String> {
    let fires = |rule: &str| {
        let (series, limit) = rule.strip_prefix("max(")?.split_once(") ")?;
        let (how, limit) = limit.split_once(' ')?;
        let (value, limit) = (value(series)?, limit.parse::<f64>().ok()?);
        Some(if how == "==" { value == limit } else { value > limit })
    };
    rules().into_iter().filter(|(_, rule)| fires(rule) == Some(true)).map(|(name, _)| name).collect()
}

#[test]
fn every_metric_of_the_alerts_exists_and_each_alert_says_what_to_do() {
    let rules = rules();
    assert!(rules.len() >= 10, "{rules:?}");
    for (name, expression) in &rules {
        assert!(!metrics(expression).is_empty(), "{name}: {expression}");
        assert_exist(name, expression);
    }
    let text = read(RULES);
    for part in ["summary: ", "action: ", "labels: { severity: "] {
        assert_eq!(text.matches(part).count(), rules.len(), "{part}");
    }
}

#[test]
fn every_label_of_the_alerts_belongs_to_its_metric() {
    for (name, expression) in rules() {
        for (metric, rest) in
            expression.match_indices("outboxd_").filter_map(|(at, _)| expression[at..].split_once('{'))
        {
            let Some(known) = METRICS.iter().find(|known| known.name == metric) else { continue };
            let label = rest.split(['=', '!']).next().unwrap();
            assert!(known.labels.contains(&label), "{name}: {metric} has no label {label}");
        }
    }
}

#[tokio::test]
async fn every_check_that_an_alert_names_is_one_of_the_health_view() {
    let client = postgres::database().await.connect().await;
    let checks: Vec<String> = client.values("SELECT name FROM outboxd.health").await;
    let mut named = BTreeSet::new();
    for (alert, expression) in rules() {
        for rest in expression.split("check=").skip(1) {
            let quoted = rest.split('"').nth(1).unwrap();
            for check in quoted.split('|') {
                assert!(checks.iter().any(|known| known == check), "{alert}: {check} is no check");
                named.insert(check.to_owned());
            }
        }
    }
    let wanted = [
        "circuits",
        "descriptors",
        "event_consumers",
        "event_streams",
        "events",
        "origin",
        "paused",
        "pooler",
        "relay_lag",
        "routes",
        "schedules",
    ];
    assert_eq!(named.into_iter().collect::<Vec<_>>(), wanted);
}

/// At which level of a check an alert fires, as the metric has it: 0 ok, 1 warn, 2 critical.
fn fires(alert: &str, check: &str, level: i32) -> bool {
    let (_, expression) = rules().into_iter().find(|(name, _)| name == alert).expect("there is such an alert");
    let above = expression.strip_prefix(&format!("max(outboxd_health_level{{check=\"{check}\"}}) > "));
    level > above.and_then(|above| above.parse().ok()).unwrap_or_else(|| panic!("{alert}: {expression}"))
}

#[tokio::test]
async fn nobody_is_woken_for_a_half_open_circuit_that_no_work_waits_for() {
    let client = postgres::database().await.connect().await;
    let held = "INSERT INTO outboxd.route VALUES ('default', 0, 'sms');
                INSERT INTO outboxd.channel_state (channel, held_until, reason) VALUES ('sms', now(), 'failures')";
    client.run(held).await;
    let level = "SELECT array_position('{ok,warn,critical}', level) - 1 FROM outboxd.health WHERE name = 'circuits'";
    assert!(!fires("OutboxdReachesItsProviders", "circuits", client.value(level).await));
    client.run("SELECT outboxd.notify('order', 'r', '{}'), outboxd._take_snapshot()").await;
    assert!(fires("OutboxdReachesItsProviders", "circuits", client.value(level).await), "its work waits");
    let again = "UPDATE outboxd.snapshot SET taken_at = '-infinity'; SELECT outboxd._take_snapshot()";
    let behind = "UPDATE outboxd.route SET position = 1; INSERT INTO outboxd.route VALUES ('default', 0, 'push')";
    client.run(&format!("{behind}; {again}")).await;
    let behind = client.value(level).await;
    assert!(!fires("OutboxdReachesItsProviders", "circuits", behind), "what waits is for the channel before it");
    client.run(&format!("UPDATE outboxd.channel_state SET held_until = now() + interval '1 min'; {again}")).await;
    let open = client.value(level).await;
    assert!(!fires("OutboxdReachesItsProviders", "circuits", open), "it is open, and nothing waits for it");
    client.run(&format!("UPDATE outboxd.outbox SET route_step = 1; {again}")).await;
    assert!(fires("OutboxdReachesItsProviders", "circuits", client.value(level).await), "its work waits");
}

fn panels(dashboard: &Value) -> Vec<&Value> {
    dashboard["panels"].as_array().unwrap().iter().filter(|panel| panel["type"] != "row").collect()
}

#[tokio::test]
async fn every_panel_of_the_dashboard_asks_for_what_exists() {
    let dashboard: Value = serde_json::from_str(&read(DASHBOARD)).unwrap();
    let operator = postgres::database().await.connect_as_member_of("outboxd_operator").await;
    let mut ids = BTreeSet::new();
    for panel in panels(&dashboard) {
        let title = panel["title"].as_str().unwrap();
        assert!(ids.insert(panel["id"].as_i64().unwrap()), "{title}: its id is taken");
        for target in panel["targets"].as_array().unwrap() {
            match (target["expr"].as_str(), target["rawSql"].as_str()) {
                (Some(expression), None) => {
                    assert!(!metrics(expression).is_empty(), "{title}: {expression}");
                    assert_exist(title, expression);
                }
                (None, Some(sql)) => {
                    operator.query(sql, &[]).await.unwrap_or_else(|error| panic!("{title}: {sql}: {error:?}"));
                }
                _ => panic!("{title} asks neither Prometheus nor Postgres"),
            }
        }
    }
    assert_eq!(operator.count("audit").await, 0, "a dashboard changes nothing");
}
