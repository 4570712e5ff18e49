//! Consumer groups of the events' streams.

use super::refusal::Values;
use super::release::bounded;
use super::{Result, Store, query};
use crate::queue::events::StreamFacts;

/// A group of which something is to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaggingGroup {
    /// The stream's topic.
    pub topic: String,
    /// The group's name.
    pub name: String,
    /// Entries that were cut before it had handled them; 0: it only came close.
    pub cut: i64,
    /// Entries between it and the stream's end.
    pub behind: i64,
}

impl Store {
    /// The topics that have a stream, so many after this one.
    pub async fn event_topics(&self, after: &str, topics_max: u32) -> Result<Vec<String>> {
        let query = query!("events/find_streams", Relaxed, [TEXT, INT4]);
        let rows = self.query(query, &[&after, &bounded(topics_max)]).await?;
        rows.iter().map(|row| row.value(0)).collect()
    }

    /// Writes down what was seen of these streams' groups; of whom something is to be told.
    pub async fn report_event_groups(
        &self,
        lease: &str,
        owner: i32,
        stream_max: u32,
        streams: &[StreamFacts],
    ) -> Result<Vec<LaggingGroup>> {
        let query = query!(
            "events/report_groups",
            Relaxed,
            [
                TEXT, INT4, INT8, TEXT_ARRAY, TEXT_ARRAY, TEXT_ARRAY, TEXT_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8_ARRAY,
                INT8_ARRAY
            ]
        );
        let polled: Vec<&str> = streams.iter().map(|stream| stream.topic.as_str()).collect();
        let groups = || streams.iter().flat_map(|stream| stream.groups.iter().map(move |group| (stream, group)));
        let topics: Vec<&str> = groups().map(|(stream, _)| stream.topic.as_str()).collect();
        let names: Vec<&str> = groups().map(|(_, group)| group.name.as_str()).collect();
        let delivered: Vec<&str> = groups().map(|(_, group)| group.delivered_id.as_str()).collect();
        let next: Vec<Option<i64>> = groups().map(|(_, group)| group.next).collect();
        let pending: Vec<Option<i64>> = groups().map(|(_, group)| group.pending).collect();
        let gone: Vec<i64> = groups().map(|(_, group)| group.gone).collect();
        let last: Vec<i64> = groups().map(|(stream, _)| stream.last).collect();
        let rows = self
            .query(
                query,
                &[
                    &lease,
                    &owner,
                    &i64::from(stream_max),
                    &polled,
                    &topics,
                    &names,
                    &delivered,
                    &next,
                    &pending,
                    &gone,
                    &last,
                ],
            )
            .await?;
        let straggler = |row: &tokio_postgres::Row| {
            Ok(LaggingGroup {
                topic: row.value("topic")?,
                name: row.value("name")?,
                cut: row.value("cut")?,
                behind: row.value("behind")?,
            })
        };
        rows.iter().map(straggler).collect()
    }
}
