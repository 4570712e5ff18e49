//! `[live]`: the feed for an app's own clients.
//!
//! **Guarantee.** An origin that no browser would send is refused at start. **Limit.** Origins are compared as text;
//! there are no patterns.

use std::time::Duration;

use serde::Deserialize;
use url::Url;

use super::key::KeyPath;
use super::settings::Settings;

/// `[live]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LiveConfig {
    /// WebSockets at most, per instance.
    pub sessions_max: usize,
    /// Between pings; a client that is silent for two of them is closed.
    pub heartbeat: Duration,
    /// Origins whose pages may listen without a ticket; our own always may.
    pub allowed_origins: Vec<String>,
}

/// Notes origins that no browser would send.
pub(super) fn validate(settings: &mut Settings, live: &LiveConfig) {
    let path = KeyPath::dotted("live.allowed_origins");
    for given in &live.allowed_origins {
        let origin = Url::parse(given).ok().map(|url| url.origin().ascii_serialization());
        if origin.is_none_or(|origin| !origin.eq_ignore_ascii_case(given)) {
            let what =
                format!("has {given:?}, which is no origin; write scheme, host and port as in https://shop.example");
            settings.error(&path, what);
        }
    }
}
