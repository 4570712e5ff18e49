//! Which channels a topic uses, in failover order.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use metrics::{Counter, Histogram};

use super::connections::Connections;
use super::limit::{Limits, Reached};
use super::{Channel, Error};
use crate::config::{ChannelConfig, DEFAULT_ROUTE, RouteConfig};

/// A channel with its limits: what a worker needs to make a call.
#[derive(Debug)]
pub struct Provider {
    /// The channel.
    pub channel: Channel,
    /// Its limits in this instance.
    pub limits: Arc<Limits>,
    /// The longest that a call takes.
    pub timeout: Duration,
    /// Counts what was delivered and how long that took: looked up once, because every delivery asks for it.
    pub delivered: OnceLock<(Counter, Histogram)>,
}

/// The channels of a topic, in failover order, and its policy.
#[derive(Debug)]
pub struct Route {
    /// How often, how long apart, and in which order; `policy.channels` are the names of `channels`.
    pub policy: RouteConfig,
    /// In failover order; never empty.
    pub channels: Vec<Arc<Provider>>,
}

impl Route {
    /// Which channel a row is at, by its `route_step`. A route that became shorter goes on with its last channel.
    pub fn position(&self, route_step: i16) -> usize {
        usize::try_from(route_step).unwrap_or(0).min(self.channels.len() - 1)
    }

    /// The `route_step` of the channel after this position.
    pub fn step_after(position: usize) -> i16 {
        i16::try_from(position + 1).unwrap_or(i16::MAX)
    }
}

/// Routes by topic.
#[derive(Debug)]
pub struct Router {
    routes: HashMap<String, Route>,
}

/// A topic that this instance's configuration leads nowhere: its rows wait for an instance that has a route.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("no route for topic `{0}` and no default route")]
pub struct NoRoute(pub String);

impl Router {
    /// Compiles every channel once and shares it between the routes that name it.
    pub fn new(
        channels: &BTreeMap<String, ChannelConfig>,
        routes: &BTreeMap<String, RouteConfig>,
    ) -> Result<Router, Error> {
        Router::sharing(channels, routes, &Arc::default())
    }

    /// As [`Router::new`], with the bound that all connections of the process have.
    pub fn sharing(
        channels: &BTreeMap<String, ChannelConfig>,
        routes: &BTreeMap<String, RouteConfig>,
        connections: &Arc<Connections>,
    ) -> Result<Router, Error> {
        let mut providers = HashMap::new();
        for (name, config) in channels {
            let channel = Channel::sharing(name, config, connections)?;
            providers.insert(
                name.as_str(),
                Arc::new(Provider {
                    channel,
                    limits: Limits::new(config),
                    timeout: config.timeout,
                    delivered: OnceLock::new(),
                }),
            );
        }
        let mut by_topic = HashMap::new();
        for (topic, policy) in routes {
            let find = |name: &String| {
                let missing =
                    || Error { channel: name.clone(), reason: format!("route `{topic}` names it, nothing defines it") };
                providers.get(name.as_str()).map(Arc::clone).ok_or_else(missing)
            };
            let channels = policy.channels.iter().map(find).collect::<Result<Vec<_>, _>>()?;
            if channels.is_empty() {
                return Err(Error { channel: "none".to_owned(), reason: format!("route `{topic}` names no channel") });
            }
            by_topic.insert(topic.clone(), Route { policy: policy.clone(), channels });
        }
        Ok(Router { routes: by_topic })
    }

    /// The channels at a limit, each with which one: what messages waited for since this was asked last.
    pub fn limits_reached(&self, now: Instant) -> Vec<(String, Reached)> {
        let mut reached = BTreeMap::new();
        for provider in self.routes.values().flat_map(|route| &route.channels) {
            // A channel of several routes is asked once: the answer is for what went before.
            let name = provider.channel.name().to_string();
            reached.entry(name).or_insert_with(|| provider.limits.reached(now));
        }
        reached.into_iter().filter_map(|(name, reached)| Some((name, reached?))).collect()
    }

    /// The topics that have a route, if not every topic has one. An instance that only relays needs no routes: without
    /// any it publishes everything.
    pub fn topics(&self) -> Option<impl Iterator<Item = &str>> {
        let has_all = self.routes.is_empty() || self.routes.contains_key(DEFAULT_ROUTE);
        (!has_all).then(|| self.routes.keys().map(String::as_str))
    }

    /// Whether an instance with these routes publishes the topic.
    pub fn publishes(&self, topic: &str) -> bool {
        self.routes.is_empty() || self.route_for(topic).is_ok()
    }

    /// The topic's route, else the default one.
    pub fn route_for(&self, topic: &str) -> Result<&Route, NoRoute> {
        self.routes.get(topic).or_else(|| self.routes.get(DEFAULT_ROUTE)).ok_or_else(|| NoRoute(topic.to_owned()))
    }
}
