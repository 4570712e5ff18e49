//! Whether the HTTP endpoints can listen.

use std::collections::BTreeSet;

use super::ready;
use super::report::{Finding, State};
use crate::config::{Config, Role};
use crate::server::Api;

/// Listens as `run` would, for a moment.
pub(super) async fn check(config: &Config, roles: &BTreeSet<Role>) -> Option<Finding> {
    let error = Api::probe(config, roles).await.err()?;
    if error.is_configuration() {
        return Some(Finding::new("http", State::Refused, error.to_string()));
    }
    // `check` beside a running instance is no error; a second instance on the same address would be.
    if ready::is_alive(config.http_addr).await {
        let text = format!("an instance listens on {} already; a second needs another http_addr", config.http_addr);
        return Some(Finding::new("http", State::Warn, text));
    }
    Some(Finding::new("http", State::Away, error.to_string()))
}
