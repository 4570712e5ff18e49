//! Whether Redis answers, and whether it keeps what it is given: asked as `run` would ask.

use secrecy::ExposeSecret;

use super::report::{Finding, State};
use crate::config::{Config, QueueKind};
use crate::queue;

pub(super) async fn check(config: &Config) -> Vec<Finding> {
    let Some(url) = config.redis_url.as_ref().filter(|_| config.queue.kind != QueueKind::Memory) else {
        return Vec::new();
    };
    let (state, text) = match queue::inspect(&config.queue, url).await {
        Ok(facts) => {
            let tls = if url.expose_secret().starts_with("rediss") { "on" } else { "off" };
            (State::Ok, format!("version {}, {}, TLS {tls}, {}", facts.version, facts.mode, facts.policy))
        }
        Err(error @ queue::Error::Unusable(_)) => (State::Refused, explain(&error)),
        Err(error) => (State::Away, explain(&error)),
    };
    vec![Finding::new("redis", state, text)]
}

fn explain(error: &queue::Error) -> String {
    match error {
        queue::Error::Unavailable(why) => {
            format!("cannot be used: {why}; is it running, and are host, port and TLS (rediss://) right?")
        }
        queue::Error::Full(why) | queue::Error::Unusable(why) => format!("cannot be used: {why}"),
    }
}
