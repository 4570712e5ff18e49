//! Which page is asked for, and what it looks up.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::listing;
use crate::config::Scope;
use crate::server::access::Caller;
use crate::server::api::{notifications, redact};
use crate::server::problem::Problem;
use crate::store::Store;
use crate::store::request::Answer;

/// A page with its filters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    Now,
    Notifications(BTreeMap<String, String>),
    Notification { id: i64, shows_payload: bool },
    Dead,
    Channels,
    Topics,
    Schedules,
    Events,
    Instances,
    Audit { before: Option<i64> },
    Bulk,
    BulkOne { id: i64 },
}

/// One entry of the navigation: path, name, the key after `g`, whether a gap stands above it.
pub(super) const NAVIGATION: [(&str, &str, &str, bool); 10] = [
    ("/", "Now", "n", false),
    ("/notifications", "Notifications", "l", false),
    ("/dead", "Dead letters", "d", false),
    ("/channels", "Channels", "c", true),
    ("/topics", "Topics", "t", false),
    ("/schedules", "Schedules", "s", false),
    ("/events", "Events", "e", false),
    ("/instances", "Instances", "i", true),
    ("/bulk", "Bulk actions", "b", false),
    ("/audit", "Audit", "a", false),
];

impl Place {
    /// `None`: there is no such page.
    pub(super) fn parse(path: &str, query: &str) -> Option<Place> {
        let fields: BTreeMap<String, String> = url::form_urlencoded::parse(query.as_bytes())
            .map(|(name, value)| (name.into_owned(), value.trim().to_owned()))
            .filter(|(_, value)| !value.is_empty())
            .collect();
        let id = |rest: &str| rest.parse::<i64>().ok();
        Some(match path {
            "/" => Place::Now,
            "/notifications" => Place::Notifications(fields),
            "/dead" => Place::Dead,
            "/channels" => Place::Channels,
            "/topics" => Place::Topics,
            "/schedules" => Place::Schedules,
            "/events" => Place::Events,
            "/instances" => Place::Instances,
            "/audit" => Place::Audit { before: fields.get("before").and_then(|before| id(before)) },
            "/bulk" => Place::Bulk,
            _ => match (path.strip_prefix("/notifications/"), path.strip_prefix("/bulk/")) {
                (Some(rest), _) => Place::Notification { id: id(rest)?, shows_payload: fields.contains_key("payload") },
                (_, Some(rest)) => Place::BulkOne { id: id(rest)? },
                _ => return None,
            },
        })
    }

    /// The entry of the navigation that it belongs to.
    pub(super) fn section(&self) -> &'static str {
        match self {
            Place::Now => "/",
            Place::Notifications(_) | Place::Notification { .. } => "/notifications",
            Place::Dead => "/dead",
            Place::Channels => "/channels",
            Place::Topics => "/topics",
            Place::Schedules => "/schedules",
            Place::Events => "/events",
            Place::Instances => "/instances",
            Place::Audit { .. } => "/audit",
            Place::Bulk | Place::BulkOne { .. } => "/bulk",
        }
    }

    /// What tells it apart from others, as far as the look goes. Who may see payloads sees another one, but for the first
    /// page, which has none.
    pub(super) fn name(&self, caller: &Caller) -> String {
        let redacted = if caller.may_see_payloads() || *self == Place::Now { "" } else { "redacted:" };
        format!("{redacted}{}", self.address())
    }

    fn address(&self) -> String {
        match self {
            Place::Notifications(fields) => {
                let query = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
                format!("/notifications?{query}")
            }
            Place::Notification { id, .. } => format!("/notifications/{id}"),
            Place::Audit { before } => format!("/audit?{before:?}"),
            Place::BulkOne { id } => format!("/bulk/{id}"),
            _ => self.section().to_owned(),
        }
    }

    /// Whether it changes under the reader's eyes. Lists that are paged through stay as they are: rows that move while one
    /// reads are in the way.
    pub(super) fn is_live(&self) -> bool {
        !matches!(self, Place::Notifications(_) | Place::Audit { .. })
    }

    /// What it shows to this caller.
    pub(super) async fn look(&self, store: &Store, caller: &Caller) -> Result<Value, Problem> {
        let mut found = match self {
            Place::Notifications(fields) => return listing::find(store, caller, fields).await,
            Place::Notification { id, .. } => return one(store, caller, *id).await,
            Place::Audit { .. } => {
                caller.check(Scope::Operate)?;
                self.find(store).await?
            }
            _ => self.find(store).await?,
        };
        if !caller.may_see_payloads() {
            // Filters and subjects may name recipients.
            for rows in ["entries", "actions"] {
                found[rows].as_array_mut().into_iter().flatten().for_each(redact::row);
            }
        }
        Ok(found)
    }

    async fn find(&self, store: &Store) -> Answer<Value> {
        match self {
            Place::Now => {
                let (health, work) = tokio::try_join!(store.look_at_health(), store.look_at_work())?;
                Ok(json!({"health": health, "work": work}))
            }
            Place::Dead => store.look_at_dead().await,
            Place::Channels => store.look_at_channels().await,
            Place::Topics => store.look_at_topics().await,
            Place::Schedules => store.look_at_schedules().await,
            Place::Events => store.look_at_events().await,
            Place::Instances => store.look_at_instances().await,
            Place::Audit { before } => store.look_at_audit(*before).await,
            Place::Bulk => store.look_at_bulk(None).await,
            Place::BulkOne { id } => store.look_at_bulk(Some(*id)).await,
            Place::Notifications(_) | Place::Notification { .. } => Ok(Value::Null),
        }
    }
}

async fn one(store: &Store, caller: &Caller, id: i64) -> Result<Value, Problem> {
    let (details, life) = tokio::try_join!(notifications::details(store, caller, id), async {
        Ok::<Value, Problem>(store.look_at_life(id).await?)
    })?;
    Ok(json!({"notification": serde_json::to_value(details).unwrap_or_default(), "life": life}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_of_the_navigation_is_a_page_of_its_own_section() {
        for (path, ..) in NAVIGATION {
            assert_eq!(Place::parse(path, "").unwrap().section(), path);
        }
    }

    #[test]
    fn what_is_no_page_is_none() {
        for path in
            ["", "/nothing", "/notifications/", "/notifications/x", "/notifications/1/2", "/bulk/-", "/bulk/new"]
        {
            assert_eq!(Place::parse(path, ""), None, "{path}");
        }
        assert_eq!(Place::parse("/bulk/7", ""), Some(Place::BulkOne { id: 7 }));
        assert_eq!(Place::parse("/audit", "before=12"), Some(Place::Audit { before: Some(12) }));
    }
}
