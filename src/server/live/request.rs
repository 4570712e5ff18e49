//! What a client asks for: `?topic=…[&after=N][&topic=…[&after=N]]…[&key=…][&ticket=…]`. An `after` belongs to the topic
//! before it, because positions are counted by topic.
//!
//! **Guarantee.** What cannot be meant is refused, with what to write instead. **Limit.** One key for all topics of a
//! session.

use std::sync::Arc;

use url::form_urlencoded;

use super::session::Wanted;
use crate::config::TOPIC_BYTES_MAX;
use crate::server::problem::{Kind, Problem};

/// Topics of one session.
pub(super) const TOPICS_MAX: usize = 16;
/// Bytes of a key, as `publish()` has it.
const KEY_BYTES_MAX: usize = 512;

/// A query, read.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Asked {
    pub wanted: Vec<Wanted>,
    pub key: Option<String>,
    pub ticket: Option<String>,
}

fn bad(detail: impl Into<String>) -> Problem {
    Problem::new(Kind::BadRequest, detail)
}

pub(super) fn parse(query: &str) -> Result<Asked, Problem> {
    let mut asked = Asked::default();
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        match &*name {
            "topic" => asked.add_topic(&value)?,
            "after" => {
                let position = value.parse().ok().filter(|position: &i64| *position >= 0);
                let position = position.ok_or_else(|| bad("after is the position of the last event that you have"))?;
                let last = asked.wanted.last_mut().filter(|wanted| wanted.after.is_none());
                last.ok_or_else(|| bad("write each after behind its topic: topic=a&after=1&topic=b&after=2"))?.after =
                    Some(position);
            }
            "key" if asked.key.is_none() => asked.key = Some(value.into_owned()),
            "ticket" if asked.ticket.is_none() => asked.ticket = Some(value.into_owned()),
            "key" | "ticket" => return Err(bad(format!("{name} may be given once"))),
            other => return Err(bad(format!("{other:?} is no parameter; there are topic, after, key and ticket"))),
        }
    }
    check_key(asked.key.as_deref()).map_err(bad)?;
    if asked.wanted.is_empty() {
        return Err(bad("say what to listen to: ?topic=…"));
    }
    Ok(asked)
}

impl Asked {
    fn add_topic(&mut self, topic: &str) -> Result<(), Problem> {
        check_topic(topic).map_err(bad)?;
        if self.wanted.iter().any(|wanted| &*wanted.topic == topic) {
            return Err(bad(format!("the topic {topic:?} is given twice")));
        }
        if self.wanted.len() == TOPICS_MAX {
            return Err(bad(format!("one session has {TOPICS_MAX} topics at most")));
        }
        self.wanted.push(Wanted { topic: Arc::from(topic), after: None });
        Ok(())
    }
}

/// What is wrong with a topic.
pub(super) fn check_topic(topic: &str) -> Result<(), &'static str> {
    let is_topic = (1..=TOPIC_BYTES_MAX).contains(&topic.len());
    if is_topic { Ok(()) } else { Err("a topic has 1 to 200 bytes") }
}

/// What is wrong with a key.
pub(super) fn check_key(key: Option<&str>) -> Result<(), &'static str> {
    let is_key = key.is_none_or(|key| (1..=KEY_BYTES_MAX).contains(&key.len()));
    if is_key { Ok(()) } else { Err("a key has 1 to 512 bytes") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_after_belongs_to_the_topic_before_it() {
        let asked = parse("topic=a&after=7&topic=b%20%26&topic=c&after=0&key=k1&ticket=x.y").unwrap();
        let wanted = |topic: &str, after| Wanted { topic: Arc::from(topic), after };
        assert_eq!(asked.wanted, [wanted("a", Some(7)), wanted("b &", None), wanted("c", Some(0))]);
        assert_eq!((asked.key.as_deref(), asked.ticket.as_deref()), (Some("k1"), Some("x.y")));
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        let many: String = (0..=TOPICS_MAX).map(|n| format!("topic=t{n}&")).collect();
        let long = format!("topic={}", "x".repeat(201));
        for query in [
            "",
            "key=k",
            "after=1&topic=a",
            "topic=a&after=1&after=2",
            "topic=a&after=-1",
            "topic=a&after=x",
            "topic=a&topic=a",
            "topic=",
            "topic=a&key=",
            "topic=a&key=k&key=l",
            "topic=a&since=1",
            many.trim_end_matches('&'),
            &long,
        ] {
            assert!(parse(query).is_err(), "{query}");
        }
    }
}
