//! What a token with `topics` reaches: what is of one of its topics, and nothing that is about all of them.
//!
//! Lists are narrowed in their statements, by [`Caller::topics`], so that a limit counts the token's own rows. What is
//! named by a number or a name is looked up here first.
//!
//! **Guarantee.** What is of another topic is answered as if it did not exist; what a token may not have whatever there
//! is, is refused by its name alone. A token without `topics` costs no statement more. **Limit.** A number tells that
//! others were drawn.

use serde_json::Value;

use super::bulk::no_bulk;
use super::notifications::no_notification;
use crate::server::access::Caller;
use crate::server::problem::{Kind, Problem};
use crate::store::Store;

/// Refuses what is about all topics.
pub(in crate::server) fn everything(caller: &Caller, what: &str) -> Result<(), Problem> {
    if caller.topics().is_none() {
        return Ok(());
    }
    let name = caller.name();
    let detail = format!("the token {name:?} is for its topics alone (tokens.{name}.topics), and {what} is about all");
    Err(Problem::new(Kind::Forbidden, detail))
}

/// This notification. Its topic never changes.
pub(in crate::server) async fn notification(store: &Store, caller: &Caller, id: i64) -> Result<(), Problem> {
    if caller.topics().is_none() {
        return Ok(());
    }
    let found = store.read_notification(id).await?;
    match found.filter(|details| caller.may_use_topic(&details.found.topic)) {
        Some(_) => Ok(()),
        None => Err(no_notification(id)),
    }
}

/// This schedule, by the topic that it has now.
pub(in crate::server) async fn schedule(store: &Store, caller: &Caller, name: &str) -> Result<(), Problem> {
    if caller.topics().is_none() {
        return Ok(());
    }
    match store.topic_of_schedule(name).await?.filter(|topic| caller.may_use_topic(topic)) {
        Some(_) => Ok(()),
        None => Err(Problem::new(Kind::NotFound, format!("there is no schedule {name:?}"))),
    }
}

/// This bulk action, by the topic that its filter names.
pub(in crate::server) async fn bulk_action(store: &Store, caller: &Caller, id: i64) -> Result<(), Problem> {
    if caller.topics().is_none() {
        return Ok(());
    }
    match store.read_bulk_action(id).await?.filter(|row| covers(caller, &row["filter"])) {
        Some(_) => Ok(()),
        None => Err(no_bulk(id)),
    }
}

/// Whether what this filter finds is of one of the caller's topics.
pub(super) fn covers(caller: &Caller, filter: &Value) -> bool {
    caller.topics().is_none() || filter["topic"].as_str().is_some_and(|topic| caller.may_use_topic(topic))
}

/// A filter, a JSON object as text, must name one of the caller's topics, and ask nothing that the caller is not shown.
pub(in crate::server) fn filter(caller: &Caller, filter: &str) -> Result<(), Problem> {
    // Postgres reads it too and says what is wrong with it; of two keys alike both take the last one.
    let parsed: Value = serde_json::from_str(filter).unwrap_or_default();
    let name = caller.name();
    if !caller.may_see_payloads() && parsed.get("error_like").is_some() {
        let detail = format!("the token {name:?} may not search errors (tokens.{name}.payloads); filter by cause");
        return Err(Problem::new(Kind::Forbidden, detail));
    }
    if covers(caller, &parsed) {
        return Ok(());
    }
    let detail = format!(
        "the token {name:?} may act in its topics alone: name one as the filter's topic (tokens.{name}.topics)"
    );
    Err(Problem::new(Kind::Forbidden, detail))
}
