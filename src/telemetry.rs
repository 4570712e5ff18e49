//! Logs: text on a terminal, JSON lines otherwise, always on stderr so that output stays output. Metrics: [`catalog`]
//! lists them, [`recorder`] keeps them. And spans: [`trace`] says to which trace a call belongs, [`otlp`] exports them.
//!
//! **Guarantee.** No recipient, payload or secret is logged, counted or traced. **Limit.** Spans and statistics of the
//! last seconds are lost with the process; nothing else depends on them.
//!
//! May change: what is logged. Must not: a recipient, payload or secret in any of them; the names of metrics without
//! `docs/metrics.md`, the dashboard and the alerts, which tests compare.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt as _;

use lines::Reader;

/// What is logged when nobody asks for anything else. Which migrations were applied, and what is missing after them, is told
/// by whoever applied them; the driver would repeat the server's notices.
pub const SERVICE_FILTER: &str = "info,refinery_core=warn,tokio_postgres=warn";
/// The HTTP client's own words name the hosts of recipients: only its warnings are logged, whoever asks for more.
const CLIENT_FILTERS: [&str; 3] = ["reqwest=warn", "hyper_util=warn", "h2=warn"];

pub mod catalog;
mod lines;
pub mod otlp;
pub mod outage;
pub mod recorder;
pub mod shortages;
pub mod statistics;
pub mod trace;

/// This binary's version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// How it names itself to those it calls.
pub const USER_AGENT: &str = concat!("outboxd/", env!("CARGO_PKG_VERSION"));
/// The commit it was built from, where the build said so (`OUTBOXD_COMMIT`).
pub const COMMIT: &str = match option_env!("OUTBOXD_COMMIT") {
    Some(commit) => commit,
    None => "unknown",
};

/// A filter that is not understood.
#[derive(Debug, thiserror::Error)]
#[error("{origin} is no log filter: {reason}; write it as \"info\" or \"warn,outboxd=debug\"")]
pub struct BadFilter {
    origin: &'static str,
    /// The parser's words; its chain of causes only repeats them.
    reason: String,
}

/// Starts logging. The filter is `--log`, else `OUTBOXD_LOG`, else `RUST_LOG`, else `fallback`.
pub fn init(flag: Option<&str>, fallback: &str) -> Result<(), BadFilter> {
    let (origin, filter) = choose(flag, fallback, |name| std::env::var(name).ok());
    let bad = |error: &dyn std::fmt::Display| BadFilter { origin, reason: error.to_string() };
    let mut filter = EnvFilter::try_new(filter).map_err(|error| bad(&error))?;
    for directive in CLIENT_FILTERS {
        filter = filter.add_directive(directive.parse().map_err(|error| bad(&error))?);
    }
    let reader = if std::io::stderr().is_terminal() { Reader::Person } else { Reader::Program };
    // A second start in one process (an app that embeds the crate has its own logs) changes nothing.
    let _already_started = lines::subscriber(filter, reader, std::io::stderr).try_init();
    Ok(())
}

fn choose(flag: Option<&str>, fallback: &str, env: impl Fn(&str) -> Option<String>) -> (&'static str, String) {
    if let Some(filter) = flag {
        return ("--log", filter.to_owned());
    }
    ["OUTBOXD_LOG", "RUST_LOG"]
        .into_iter()
        .find_map(|name| Some((name, env(name).filter(|filter| !filter.is_empty())?)))
        .unwrap_or_else(|| ("the default", fallback.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::choose;

    #[test]
    fn the_flag_wins_over_our_variable_and_that_over_rusts() {
        let both = |name: &str| Some(name.to_lowercase());
        let rust = |name: &str| (name == "RUST_LOG").then(|| "debug".to_owned());
        assert_eq!(choose(Some("warn"), "info", both), ("--log", "warn".into()));
        assert_eq!(choose(None, "info", both), ("OUTBOXD_LOG", "outboxd_log".into()));
        assert_eq!(choose(None, "info", rust), ("RUST_LOG", "debug".into()));
        assert_eq!(choose(None, "info", |_| None), ("the default", "info".into()));
    }
}
