//! Which page is asked for, and what it reads.
//!
//! **Guarantee.** Who may not see a page is refused before anything kept is looked at; what a caller may not see of it is
//! taken out before a snapshot is kept, and the snapshot is kept for those who see alike. **Limit.** A list shows a number of rows that fits a page, and leads to the next.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::snapshots::Name;
use super::{listing, part};
use crate::config::Scope;
use crate::server::access::Caller;
use crate::server::api::{notifications, reach, redact};
use crate::server::problem::Problem;
use crate::store::Store;
use crate::store::dashboard::{Part, Told};

/// A page with its filters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Page {
    Now,
    Notifications(BTreeMap<String, String>),
    Notification { id: i64, shows_payload: bool },
    Dead(Part),
    Channels(Part),
    Topics(Part),
    Schedules(Part),
    Events(Part),
    Instances(Part),
    Audit { before: Option<i64> },
    Bulk { before: Option<i64> },
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

impl Page {
    /// `None`: there is no such page.
    pub(super) fn parse(path: &str, query: &str) -> Option<Page> {
        let fields: BTreeMap<String, String> = url::form_urlencoded::parse(query.as_bytes())
            .map(|(name, value)| (name.into_owned(), value.trim().to_owned()))
            .filter(|(_, value)| !value.is_empty())
            .collect();
        let id = |rest: &str| rest.parse::<i64>().ok();
        let before = || fields.get("before").and_then(|before| id(before));
        Some(match path {
            "/" => Page::Now,
            "/notifications" => Page::Notifications(fields),
            "/dead" => Page::Dead(part::parse(&fields)),
            "/channels" => Page::Channels(part::parse(&fields)),
            "/topics" => Page::Topics(part::parse(&fields)),
            "/schedules" => Page::Schedules(part::parse(&fields)),
            "/events" => Page::Events(part::parse(&fields)),
            "/instances" => Page::Instances(part::parse(&fields)),
            "/audit" => Page::Audit { before: before() },
            "/bulk" => Page::Bulk { before: before() },
            _ => match (path.strip_prefix("/notifications/"), path.strip_prefix("/bulk/")) {
                (Some(rest), _) => Page::Notification { id: id(rest)?, shows_payload: fields.contains_key("payload") },
                (_, Some(rest)) => Page::BulkOne { id: id(rest)? },
                _ => return None,
            },
        })
    }

    /// The entry of the navigation that it belongs to.
    pub(super) fn section(&self) -> &'static str {
        match self {
            Page::Now => "/",
            Page::Notifications(_) | Page::Notification { .. } => "/notifications",
            Page::Dead(_) => "/dead",
            Page::Channels(_) => "/channels",
            Page::Topics(_) => "/topics",
            Page::Schedules(_) => "/schedules",
            Page::Events(_) => "/events",
            Page::Instances(_) => "/instances",
            Page::Audit { .. } => "/audit",
            Page::Bulk { .. } | Page::BulkOne { .. } => "/bulk",
        }
    }

    /// What it is called: as in the navigation, or by what it is about.
    pub(super) fn title(&self) -> String {
        match self {
            Page::Notification { id, .. } => format!("Notification {id}"),
            Page::BulkOne { id } => format!("Bulk action {id}"),
            _ => {
                NAVIGATION.iter().find(|(path, ..)| *path == self.section()).map_or("", |(_, name, ..)| name).to_owned()
            }
        }
    }

    /// What tells its snapshot apart from others.
    pub(super) fn name(&self, caller: &Caller) -> Name {
        Name { sight: caller.sight(), address: self.address() }
    }

    /// Whether this caller may see it at all, else the problem that says why not.
    pub(super) fn check(&self, caller: &Caller) -> Result<(), Problem> {
        match self {
            // What operators did is for operators, as in SQL.
            Page::Audit { .. } => caller.check(Scope::Operate).and_then(|()| reach::everything(caller, "this page")),
            Page::Now | Page::Channels(_) | Page::Instances(_) => reach::everything(caller, "this page"),
            _ => Ok(()),
        }
    }

    fn address(&self) -> String {
        match self {
            Page::Notifications(fields) => {
                let query = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
                format!("/notifications?{query}")
            }
            Page::Notification { id, .. } => format!("/notifications/{id}"),
            Page::Audit { before } | Page::Bulk { before } => format!("{}?{before:?}", self.section()),
            Page::BulkOne { id } => format!("/bulk/{id}"),
            _ => match self.part() {
                Some(part) => part::address(self.section(), part),
                None => self.section().to_owned(),
            },
        }
    }

    /// Which part of its list is asked for, of those that are read in parts.
    pub(super) fn part(&self) -> Option<&Part> {
        match self {
            Page::Dead(part)
            | Page::Channels(part)
            | Page::Topics(part)
            | Page::Schedules(part)
            | Page::Events(part)
            | Page::Instances(part) => Some(part),
            _ => None,
        }
    }

    /// Whether it changes under the reader's eyes. Lists that are paged through stay as they are: rows that move while one
    /// reads are in the way.
    pub(super) fn is_live(&self) -> bool {
        let is_later = self.part().is_some_and(|part| part.after.is_some());
        !is_later && !matches!(self, Page::Notifications(_) | Page::Audit { .. } | Page::Bulk { before: Some(_) })
    }

    /// What it shows to this caller, who may see it.
    pub(super) async fn read(&self, store: &Store, caller: &Caller) -> Result<Value, Problem> {
        let topics = caller.topics();
        let topics = topics.as_deref();
        let told = if caller.may_see_payloads() { Told::Whole } else { Told::Masked };
        let mut found = match self {
            Page::Notifications(fields) => return listing::find(store, caller, fields).await,
            Page::Notification { id, .. } => return one(store, caller, *id).await,
            Page::Now => {
                let (health, work) = tokio::try_join!(store.dashboard_health(), store.dashboard_work())?;
                json!({"health": health, "work": work})
            }
            Page::Dead(part) => cut(store.dashboard_dead_groups(part, topics, told).await?, "groups"),
            Page::Channels(part) => cut(store.dashboard_channels(part, told).await?, "channels"),
            Page::Topics(part) => cut(store.dashboard_topics(part, topics).await?, "topics"),
            Page::Schedules(part) => cut(store.dashboard_schedules(part, topics).await?, "schedules"),
            Page::Events(part) => cut(store.dashboard_events(part, topics).await?, "consumers"),
            Page::Instances(part) => cut(store.dashboard_instances(part).await?, "instances"),
            Page::Audit { before } => store.dashboard_audit(*before).await?,
            Page::Bulk { before } => store.dashboard_bulk(*before, topics).await?,
            Page::BulkOne { id } => store.dashboard_bulk_action(*id, topics).await?,
        };
        if !caller.may_see_payloads() {
            redact::row(&mut found);
        }
        Ok(found)
    }
}

fn cut(mut found: Value, rows: &str) -> Value {
    part::cut(&mut found, rows);
    found
}

async fn one(store: &Store, caller: &Caller, id: i64) -> Result<Value, Problem> {
    let Some(details) = notifications::details(store, caller, id).await? else { return Ok(json!({})) };
    let mut life = store.dashboard_life(id).await?;
    if !caller.may_see_payloads() {
        redact::row(&mut life);
    }
    Ok(json!({"notification": serde_json::to_value(details).unwrap_or_default(), "life": life}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_of_the_navigation_is_a_page_of_its_own_section() {
        for (path, ..) in NAVIGATION {
            assert_eq!(Page::parse(path, "").unwrap().section(), path);
        }
    }

    #[test]
    fn what_is_no_page_is_none() {
        for path in
            ["", "/nothing", "/notifications/", "/notifications/x", "/notifications/1/2", "/bulk/-", "/bulk/new"]
        {
            assert_eq!(Page::parse(path, ""), None, "{path}");
        }
        assert_eq!(Page::parse("/bulk/7", ""), Some(Page::BulkOne { id: 7 }));
        assert_eq!(Page::parse("/audit", "before=12"), Some(Page::Audit { before: Some(12) }));
    }
}
