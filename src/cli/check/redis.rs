//! Whether Redis answers, and whether it keeps what it is given.

use std::collections::HashMap;
use std::time::Duration;

use ::redis::{AsyncConnectionConfig, Client, RedisError};
use secrecy::{ExposeSecret, SecretString};

use super::report::{Finding, State};
use crate::config::{Config, QueueKind};

const PATIENCE: Duration = Duration::from_secs(5);

/// The policy under which Redis refuses new data rather than dropping old.
const KEEPING_POLICY: &str = "noeviction";

pub(super) async fn check(config: &Config) -> Vec<Finding> {
    match &config.redis_url {
        Some(url) if config.queue.kind != QueueKind::Memory => vec![look(url).await],
        _ => Vec::new(),
    }
}

async fn look(url: &SecretString) -> Finding {
    let info = match ask(&first_node(url.expose_secret())).await {
        Ok(info) => info,
        Err(error) => return Finding::new("redis", State::Failed, explain(&error)),
    };
    let field = |name: &str| info.get(name).map_or("?", String::as_str);
    let described = format!(
        "version {}, {}, TLS {}",
        field("redis_version"),
        field("redis_mode"),
        if url.expose_secret().starts_with("rediss") { "on" } else { "off" }
    );
    match info.get("maxmemory_policy").map(String::as_str) {
        Some(KEEPING_POLICY) => Finding::new("redis", State::Ok, format!("{described}, {KEEPING_POLICY}")),
        Some(policy) => {
            let text = format!(
                "{described}; maxmemory-policy is {policy}, which may drop messages: CONFIG SET maxmemory-policy \
                 {KEEPING_POLICY}, or use a Redis that is no cache"
            );
            Finding::new("redis", State::Failed, text)
        }
        // A sentinel holds no data and has no policy.
        None => Finding::new("redis", State::Ok, described),
    }
}

/// The URL of the first node: of a list of hosts one stands for all here, and a sentinel answers like any Redis.
fn first_node(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("redis", url));
    let (credentials, hosts) = rest.rsplit_once('@').map_or(("", rest), |(credentials, hosts)| (credentials, hosts));
    let (list, path) = hosts.split_once('/').map_or((hosts, ""), |(list, path)| (list, path));
    let first = list.split(',').next().unwrap_or_default();
    let at = if credentials.is_empty() { "" } else { "@" };
    match scheme.strip_suffix("+sentinel") {
        Some(plain) => format!("{plain}://{credentials}{at}{first}"),
        None => format!("{scheme}://{credentials}{at}{first}/{path}"),
    }
}

async fn ask(url: &str) -> Result<HashMap<String, String>, RedisError> {
    let timeouts =
        AsyncConnectionConfig::new().set_connection_timeout(Some(PATIENCE)).set_response_timeout(Some(PATIENCE));
    let mut connection = Client::open(url)?.get_multiplexed_async_connection_with_config(&timeouts).await?;
    let () = ::redis::cmd("PING").query_async(&mut connection).await?;
    let info: String = ::redis::cmd("INFO").query_async(&mut connection).await?;
    let pair = |line: &str| line.split_once(':').map(|(name, value)| (name.to_owned(), value.trim().to_owned()));
    Ok(info.lines().filter_map(pair).collect())
}

fn explain(error: &RedisError) -> String {
    let advice = match () {
        () if error.is_io_error() || error.is_timeout() => {
            "is it running, and are host, port and TLS (rediss://) right?"
        }
        () => "are user, password and their rights right?",
    };
    format!("cannot be used: {error}; {advice}")
}

#[cfg(test)]
mod tests {
    use super::first_node;

    #[test]
    fn one_node_of_many_is_asked() {
        for (url, node) in [
            ("redis://127.0.0.1", "redis://127.0.0.1/"),
            ("rediss://:p@a:6379,b:6379/1", "rediss://:p@a:6379/1"),
            ("redis+sentinel://u:p@a:26379,b:26379/name", "redis://u:p@a:26379"),
            ("redis+unix:///run/redis.sock", "redis+unix:///run/redis.sock"),
        ] {
            assert_eq!(first_node(url), node);
        }
    }
}
