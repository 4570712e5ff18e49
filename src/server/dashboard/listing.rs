//! The list of notifications: its filters, which stand in the address, and its pages.
//!
//! **Guarantee.** The address alone says what is listed, so it can be passed on. **Limit.** The search is the API's,
//! with its bounds.

use std::collections::BTreeMap;

use chrono::{TimeDelta, Utc};
use minijinja::context;
use minijinja::value::Value as Context;
use serde_json::{Map, Value};

use super::render::drawable;
use super::view::Viewer;
use crate::server::access::Caller;
use crate::server::api::notifications::{Asked, search};
use crate::server::problem::{Kind, Problem};
use crate::store::Store;

/// What `since` may be: as it stands in the address, in words, and in minutes.
const SINCE: [(&str, &str, i64); 5] = [
    ("15m", "15 minutes", 15),
    ("1h", "an hour", 60),
    ("6h", "6 hours", 360),
    ("24h", "a day", 1_440),
    ("7d", "a week", 10_080),
];

/// The filters of the address.
pub(super) type Fields = BTreeMap<String, String>;

/// Finds what the filters say. Words that are no id, key or JSON are searched for as a recipient.
pub(super) async fn find(store: &Store, caller: &Caller, fields: &Fields) -> Result<Value, Problem> {
    let mut asked = asked(fields);
    let mut found = page(store, caller, asked.clone()).await?;
    let is_word = fields.get("q").is_some_and(|q| !q.starts_with('{'));
    if is_word && found["notifications"].as_array().is_none_or(Vec::is_empty) && !fields.contains_key("recipient") {
        if let Some(q) = asked.remove("q") {
            asked.insert("recipient".to_owned(), q);
        }
        found = page(store, caller, asked).await?;
    }
    Ok(found)
}

async fn page(store: &Store, caller: &Caller, asked: Map<String, Value>) -> Result<Value, Problem> {
    let asked: Asked = serde_json::from_value(Value::Object(asked))
        .map_err(|error| Problem::new(Kind::BadRequest, format!("a filter cannot be read: {error}")))?;
    let listed = search(store, caller, asked).await?;
    Ok(serde_json::to_value(listed).unwrap_or_default())
}

/// As the API takes them.
fn asked(fields: &Fields) -> Map<String, Value> {
    let mut asked = Map::new();
    for key in ["topic", "status", "recipient", "q", "cursor"] {
        asked.extend(fields.get(key).map(|value| (key.to_owned(), Value::from(value.as_str()))));
    }
    let since = fields.get("since").and_then(|since| SINCE.iter().find(|(name, ..)| *name == since.as_str()));
    if let Some((_, _, minutes)) = since {
        asked.insert("since".to_owned(), (Utc::now() - TimeDelta::minutes(*minutes)).to_rfc3339().into());
    }
    asked
}

pub(super) fn view(found: &Value, fields: &Fields, viewer: &Viewer) -> Context {
    let more = found["next"].as_str().map(|cursor| with(fields, &[("cursor", cursor)]));
    let has_filter = fields.keys().any(|key| key != "cursor");
    let bulk = |action: &str| {
        let mut query = url::form_urlencoded::Serializer::new(format!("action={action}"));
        for key in ["topic", "recipient"] {
            if let Some(value) = fields.get(key) {
                query.append_pair(key, value);
            }
        }
        format!("/bulk/new?{}", query.finish())
    };
    context! {
        f => Context::from_pairs(fields.iter().map(|(key, value)| (key.clone(), value.clone()))),
        sinces => SINCE.map(|(name, words, _)| vec![name, words]).to_vec(),
        rows => drawable(&found["notifications"]),
        scanned_to => found["scanned_to"].as_str(),
        more, has_filter,
        is_later => fields.contains_key("cursor"),
        first => with(fields, &[]),
        order => order(fields),
        // What bulk actions filter by.
        is_bulk => fields.keys().all(|key| ["topic", "recipient", "status", "cursor"].contains(&key.as_str())),
        bulk_retry => bulk("retry"),
        bulk_discard => bulk("discard"),
        bulk_cancel => bulk("cancel"),
        may_operate => viewer.may_operate(),
    }
}

/// In which order the search finds them.
fn order(fields: &Fields) -> &'static str {
    match fields.get("status").map(String::as_str) {
        _ if fields.contains_key("recipient") => "newest first",
        Some("FAILED") => "last failed first",
        Some("PENDING") => "by topic and time",
        _ => "newest first",
    }
}

/// The list's address with these filters, and others instead of its cursor.
fn with(fields: &Fields, more: &[(&str, &str)]) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(fields.iter().filter(|(key, _)| *key != "cursor"));
    query.extend_pairs(more);
    format!("/notifications?{}", query.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_page_keeps_the_filters() {
        let fields: Fields = [("topic", "a&b"), ("cursor", "old")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        assert_eq!(with(&fields, &[("cursor", "new")]), "/notifications?topic=a%26b&cursor=new");
        assert_eq!(with(&fields, &[]), "/notifications?topic=a%26b");
    }

    #[test]
    fn the_order_is_told_as_the_search_has_it() {
        let told = |fields: &[(&str, &str)]| {
            order(&fields.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect::<Fields>())
        };
        assert_eq!(told(&[]), "newest first");
        assert_eq!(told(&[("status", "FAILED"), ("topic", "t")]), "last failed first");
        assert_eq!(told(&[("status", "PENDING")]), "by topic and time");
        assert_eq!(told(&[("status", "FAILED"), ("recipient", "r")]), "newest first");
    }

    #[test]
    fn since_becomes_a_time_and_what_is_unknown_is_left_out() {
        let fields: Fields = [("since", "1h"), ("x", "y")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        let asked = asked(&fields);
        assert_eq!(asked.len(), 1);
        assert!(asked["since"].as_str().unwrap().contains('T'));
    }
}
