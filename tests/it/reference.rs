//! The reference pages: written from the tables that the program itself uses. `OUTBOXD_BLESS=1` writes them anew.

use std::fmt::Write;
use std::path::Path;

use outboxd::config::KEYS;
use outboxd::config::key::{self, Fallback, Key, Kind};
use outboxd::telemetry::catalog::{self, METRICS};

use crate::support::golden::assert_is_current;

#[test]
fn the_configuration_page_is_current() {
    let mut page = "# Configuration\n\n\
        <!-- Written by tests/it/reference.rs from the fields in src/config/tables.rs. Do not edit. -->\n\n\
        The file is `--config`, else `$OUTBOXD_CONFIG`, else `./outboxd.toml`, else `/etc/outboxd/outboxd.toml`; the\n\
        environment wins over the file, and `--set KEY=VALUE` over both. `outboxd check` shows what came from where.\n\
        `NAME` stands for a name you choose. Keys marked 🔒 are secrets: they never print, and the variable's name with\n\
        `_FILE` appended can hold the path of a file to read instead. `outboxd.example.toml` shows all of them in place.\n"
        .to_owned();
    let mut section = None;
    for key in KEYS {
        let next = section_of(key);
        if section.as_ref() != Some(&next) {
            let title = if next.is_empty() { "Connections and HTTP".to_owned() } else { format!("`[{next}]`") };
            write!(page, "\n## {title}\n\n| key | takes | default | meaning | variable |\n|---|---|---|---|---|\n")
                .unwrap();
            section = Some(next.clone());
        }
        let name =
            key.path.strip_prefix(next.replace("NAME", "*").as_str()).unwrap_or(key.path).trim_start_matches('.');
        let lock = if key.is_secret() { " 🔒" } else { "" };
        let (takes, default) = (takes(key.kind), default(key));
        let (name, variable) = (name.replace('*', "NAME"), key.env_name());
        writeln!(page, "| `{name}`{lock} | {takes} | {default} | {} | `{variable}` |", key.meaning()).unwrap();
    }
    assert_is_current("docs/configuration.md", &page);
}

/// The table of the file that the key stands in.
fn section_of(key: &Key) -> String {
    let parts: Vec<&str> = key.segments().map(|part| if part == "*" { "NAME" } else { part }).collect();
    match parts.as_slice() {
        [_] => String::new(),
        [first @ ("tokens" | "channels" | "routes"), name, ..] => format!("{first}.{name}"),
        [first, ..] => (*first).to_owned(),
        [] => unreachable!("no key is empty"),
    }
}

fn default(key: &Key) -> String {
    match key.fallback {
        Fallback::Required(_) => "**required**".to_owned(),
        Fallback::Value("") => "none".to_owned(),
        Fallback::Value(value) => format!("`{value}`"),
        Fallback::Derived(text) | Fallback::Absent(text) => text.to_owned(),
    }
}

fn takes(kind: Kind) -> String {
    let span = key::show_ms;
    match kind {
        Kind::Text => "text".to_owned(),
        Kind::Secret => "text".to_owned(),
        Kind::SecretUrl => "a URL".to_owned(),
        Kind::Secrets => "text, or a list".to_owned(),
        Kind::Choice(words) => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "),
        Kind::Flag => "`true` or `false`".to_owned(),
        Kind::Integer(min, max) => format!("{min} to {max}"),
        Kind::Bytes(min, max) => format!("{min} to {max} bytes, as `16KiB`"),
        Kind::Ratio => "0 to 1".to_owned(),
        Kind::Span(min, max) => format!("{} to {}", span(min), span(max)),
        Kind::SpanOrNever(min, max) => format!("{} to {}, or `never`", span(min), span(max)),
        Kind::Rate => "a rate, as `100/s`".to_owned(),
        Kind::Addr => "an address and port".to_owned(),
        Kind::Texts => "a list".to_owned(),
        Kind::Networks => "a list of networks".to_owned(),
    }
}

#[test]
fn the_metrics_page_is_current() {
    let mut page = "# Metrics\n\n\
        <!-- Written by tests/it/reference.rs from src/telemetry/catalog.rs. Do not edit. -->\n\n\
        `GET /metrics` on `http_addr`, in Prometheus text; with `Authorization: Bearer …` where a token is set\n\
        (`http_token`, or one of scope `read`). Counters are of one instance since its start: sum them. Gauges that say \"the same on every instance\" show\n\
        the whole: take the maximum.\n\n\
        Labels are bounded. The first 100 topics that an instance saw with work have a label of their own; all others share\n\
        `(other)`, whose sum is exact. Which topics these are may differ from instance to instance, so sum the topics of one\n\
        instance first: `max by (status) (sum by (instance, status) (outboxd_rows))` is exact with any number of topics. A\n\
        topic by its name is in `outboxd.queue_state`, and on the page Topics.\n\n\
        | metric | type | labels | says |\n|---|---|---|---|\n"
        .to_owned();
    for metric in METRICS {
        let labels = metric.labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
        writeln!(page, "| `{}` | {} | {labels} | {} |", metric.name, metric.kind.name(), metric.help).unwrap();
    }
    page.push_str("\nBuckets, in seconds or rows:\n\n");
    for metric in METRICS {
        if let catalog::Kind::Histogram(buckets) = metric.kind {
            let buckets: Vec<String> = buckets.iter().map(ToString::to_string).collect();
            writeln!(page, "- `{}`: {}", metric.name, buckets.join(", ")).unwrap();
        }
    }
    assert_is_current("docs/metrics.md", &page);
}

#[test]
fn the_programs_on_the_pages_of_events_are_those_of_the_examples() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (name, programs) in [("docs/events.md", 3), ("docs/live.md", 2)] {
        let page = std::fs::read_to_string(root.join(name)).unwrap();
        let mut shown = 0;
        for rest in page.split("<!-- ").skip(1) {
            let (file, rest) = rest.split_once(" -->\n```").expect("a fence follows");
            let code = rest.split_once('\n').and_then(|(_, rest)| rest.split_once("\n```")).expect("the fence ends").0;
            let whole = std::fs::read_to_string(root.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
            assert!(whole.contains(code), "{name} shows what is not in {file}");
            shown += 1;
        }
        assert_eq!(shown, programs, "{name}");
    }
}
