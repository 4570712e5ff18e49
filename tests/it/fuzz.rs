//! Whatever people write, or somebody puts into Redis: an answer or a reason, never a panic. `PROPTEST_CASES` says how
//! often each is tried. What a channel is given is tried in `src/channel/fuzz.rs`.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use outboxd::config::{Env, Errors, KEYS, Loaded, QueueConfig, QueueKind, Sources, defaults, load};
use outboxd::queue;
use outboxd::schedule::calendar::{Calendar, Window};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

use crate::support::redis;

const EXAMPLE: &str = include_str!("../../outboxd.example.toml");
/// Must never be printed.
const SECRET: &str = "hunter2hunter2";

/// Values that are nearly right.
fn odd_value() -> impl Strategy<Value = String> {
    let odd = [
        "0",
        "-1",
        "1",
        "18446744073709551616",
        "1e308",
        "nan",
        "inf",
        "true",
        "never",
        "\"\"",
        "[]",
        "{}",
        "[1, \"x\"]",
        "\"5s\"",
        "\"0ms\"",
        "\"99999999999999999999d\"",
        "\"-5s\"",
        "\"1/s\"",
        "\"0/s\"",
        "\"1/0\"",
        "\"${\"",
        "\"${NOBODY}\"",
        "\"$${x}\"",
        "\"{{ recipient }}\"",
        "\"{{\"",
        "\"{% for\"",
        "\"redis://\"",
        "\"redis+sentinel://a,b\"",
        "\"postgres://[::1\"",
        "\"host=/tmp port=x\"",
        "\"10.0.0.0/33\"",
        "\"::/129\"",
        "\"16KiB\"",
        "\"99999999999GiB\"",
        "\"1.5\"",
        "\"\\u0000\"",
        "1979-05-27",
    ];
    prop_oneof![
        prop::sample::select(odd.to_vec()).prop_map(str::to_owned),
        "\\PC{0,12}".prop_map(|text| toml::Value::String(text).to_string()),
    ]
}

/// A key of ours, with a name where the user chooses one.
fn known_key() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec!["push", "default", "\"a.b\"", "\"\"", "x y"]);
    (0..KEYS.len(), name).prop_map(|(at, name)| KEYS[at].path.replace('*', name))
}

/// The example file with some of its lines changed, or any text.
fn config_text() -> impl Strategy<Value = String> {
    let lines: Vec<&str> = EXAMPLE.lines().collect();
    let count = lines.len();
    let change = (0..count, 0..5u8, odd_value());
    let changed = prop::collection::vec(change, 0..6).prop_map(move |changes| {
        let mut lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        for (at, how, value) in changes {
            let line = lines[at].trim_start_matches("# ").to_owned();
            lines[at] = match (how, line.split_once('=')) {
                (0, Some((key, _))) => format!("{key}= {value}"),
                (1, _) => line,
                (2, _) => String::new(),
                (3, _) => format!("{line}\n{line}"),
                _ => format!("{value}{line}"),
            };
        }
        lines.join("\n")
    });
    let keys = prop::collection::vec((known_key(), odd_value()), 0..5).prop_map(|pairs| {
        let lines: Vec<String> = pairs.iter().map(|(key, value)| format!("{key} = {value}")).collect();
        lines.join("\n")
    });
    prop_oneof![changed, keys, any::<String>()]
}

fn load_from(dir: &Path, text: &str, env: Env, overrides: Vec<(String, String)>) -> Result<Loaded, Errors> {
    let file = dir.join("outboxd.toml");
    std::fs::write(&file, text).unwrap();
    load(&Sources { file: Some(file), env, overrides })
}

fn told(outcome: &Result<Loaded, Errors>) -> String {
    match outcome {
        Ok(loaded) => format!("{:?} {:?}", loaded.config, loaded.shown),
        Err(errors) => format!("{errors} {errors:?}"),
    }
}

#[test]
fn any_configuration_is_taken_or_refused_with_reasons_that_tell_no_secret() {
    let dir = tempfile::tempdir().unwrap();
    let given = || prop::collection::vec((known_key(), odd_value()), 0..4);
    let strategy = (config_text(), given(), given(), any::<bool>());
    TestRunner::default()
        .run(&strategy, |(text, env, overrides, has_secret)| {
            let unquoted = |value: String| value.trim_matches('"').to_owned();
            let name = |key: String| format!("OUTBOXD_{}", key.replace(['.', '"', ' '], "_").to_uppercase());
            let mut env: Env = env.into_iter().map(|(key, value)| (name(key), unquoted(value))).collect();
            let mut overrides: Vec<_> = overrides.into_iter().map(|(key, value)| (key, unquoted(value))).collect();
            if has_secret {
                env.insert("OUTBOXD_HTTP_TOKEN".to_owned(), SECRET.to_owned());
                overrides.push(("database_url".to_owned(), format!("postgres://app:{SECRET}@127.0.0.1/app")));
            }
            let outcome = load_from(dir.path(), &text, env, overrides);
            if let Err(Errors(errors)) = &outcome {
                prop_assert!(!errors.is_empty());
            }
            prop_assert!(!told(&outcome).contains(SECRET));
            Ok(())
        })
        .unwrap();
}

#[test]
fn every_error_of_a_configuration_is_told_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let numbers: Vec<&str> =
        KEYS.iter().filter(|key| format!("{:?}", key.kind).starts_with("Integer")).map(|key| key.path).collect();
    let numbers: Vec<&str> = numbers.into_iter().filter(|path| !path.contains('*')).collect();
    let strategy = (
        prop::sample::subsequence(numbers.clone(), 0..numbers.len()),
        prop::collection::btree_set("z[a-z]{3,6}", 0..4),
    );
    TestRunner::default()
        .run(&strategy, |(wrong, unknown): (Vec<&str>, BTreeSet<String>)| {
            let unknown = unknown.iter().map(|key| format!("{key} = 1\n"));
            let wrong = wrong.iter().map(|key| format!("{key} = \"many\"\n"));
            let lines: Vec<String> = unknown.chain(wrong).collect();
            let base = "database_url = \"postgres://a@127.0.0.1/a\"\nchannels.push.url = \"https://push.example\"\nroutes.default.channels = [\"push\"]\n";
            let outcome = load_from(dir.path(), &format!("{base}{}", lines.concat()), Env::new(), Vec::new());
            let count = outcome.err().map_or(0, |Errors(errors)| errors.len());
            prop_assert_eq!(count, lines.len());
            Ok(())
        })
        .unwrap();
}

fn cron() -> impl Strategy<Value = String> {
    let field = prop_oneof![
        4 => prop::sample::select(vec![
            "*", "*/5", "0", "59", "60", "1-5", "5-1", "L", "W", "15W", "LW", "1#2", "5L", "?", "MON", "FRI-MON", "JAN", "FEB", "29", "30", "31",
            "0,30", "*/0", "1/2", "0-0", "#", "-", ",", "/", "MON#5", "+1", "H",
        ]).prop_map(str::to_owned),
        1 => "[-0-9*/,#?LW]{1,6}",
        1 => "\\PC{0,4}",
    ];
    let nickname = prop::sample::select(vec!["@daily", "@hourly", "@yearly", "@reboot", "@", "@midnight"]);
    prop_oneof![
        8 => prop::collection::vec(field, 4..7).prop_map(|fields| fields.join(" ")),
        1 => nickname.prop_map(str::to_owned),
        1 => any::<String>(),
    ]
}

proptest! {
    /// From 1900 to 2200, in every zone there is: each slot comes after the one before.
    #[test]
    fn any_schedule_has_slots_that_rise_or_a_reason(
        cron in cron(), zone in prop_oneof![prop::sample::select(chrono_tz::TZ_VARIANTS.to_vec()).prop_map(|zone| zone.name().to_owned()), "\\PC{0,12}"],
        since in -2_208_988_800i64..7_258_118_400, lead_s in 0i64..=86_400, catch_up_s in 0i64..=604_800, outage_s in -100_000i64..10_000_000,
        paused_s in -1_000_000i64..1_000_000,
    ) {
        if let Ok(calendar) = Calendar::parse(&cron, &zone) {
            let since: DateTime<Utc> = DateTime::from_timestamp(since, 0).unwrap();
            let mut moment = since;
            for _ in 0..5 {
                let Ok(next) = calendar.after(moment) else { break };
                prop_assert!(next > moment, "{cron} in {zone}: {next} after {moment}");
                moment = next;
            }
            let now = since + TimeDelta::seconds(outage_s);
            let (lead, catch_up) = (TimeDelta::seconds(lead_s), TimeDelta::seconds(catch_up_s));
            let window = Window { now, lead, catch_up, paused_until: since + TimeDelta::seconds(paused_s) };
            if let Ok(due) = calendar.due(since, window) {
                prop_assert!(due.runs.len() <= 50 && due.missed.len() <= 100);
                prop_assert!(due.runs.is_sorted() && due.next.is_some_and(|next| next >= since));
            }
        }
    }
}

/// Fields and values that nobody of ours wrote.
fn garbage() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    let field = prop_oneof![3 => Just(b"m".to_vec()), 1 => prop::collection::vec(any::<u8>(), 0..8)];
    let value = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..60),
        "-?[0-9]{0,20}:-?[0-9]{0,11}:[a-z]{1,3}:[0-9]{0,4}:\\PC{0,10}".prop_map(String::into_bytes),
        "[1-9][0-9]{19,39}:1:0:0:t".prop_map(String::into_bytes),
    ];
    (field, value)
}

#[tokio::test]
async fn garbage_in_redis_is_dropped_and_what_stands_between_arrives() {
    let mut runner = TestRunner::default();
    let rounds = runner.config().cases.div_ceil(16);
    for kind in [QueueKind::Stream, QueueKind::List] {
        let config = QueueConfig { kind, prefix: redis::unique_prefix(), fallback_after: None, ..defaults().queue };
        let queue = queue::open(&config, Some(&redis::shared().url().into())).await.unwrap();
        let mut consumer = queue.consumer("a").await.unwrap();
        let mut connection = redis::shared().connection().await;
        let key = format!("{{{}}}:v1:{}", config.prefix, queue.kind());
        for round in 0..i64::from(rounds) {
            let mut pipe = ::redis::pipe();
            for _ in 0..16 {
                let (field, value) = garbage().new_tree(&mut runner).unwrap().current();
                match kind {
                    QueueKind::List => pipe.cmd("LPUSH").arg(&key).arg(value).ignore(),
                    _ => pipe.cmd("XADD").arg(&key).arg("*").arg(field).arg(value).ignore(),
                };
            }
            pipe.exec_async(&mut connection).await.unwrap();
            queue.push(&[crate::support::world::message(round, 1)]).await.unwrap();
            let mut taken = Vec::new();
            while taken.is_empty() {
                taken = consumer.take(32, Duration::from_millis(200)).await.unwrap();
            }
            assert_eq!(taken.iter().map(|delivery| delivery.message.id).collect::<Vec<_>>(), [round]);
            consumer.acker().ack(&taken).await.unwrap();
        }
        assert_eq!(queue.depth().await.unwrap(), queue::Depth::default(), "nothing is left");
    }
}
