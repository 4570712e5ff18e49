//! A queue that several instances share, with one of this process's own for topics that some of them cannot deliver.
//!
//! Instances that share a queue may have different routes: in a rolling deploy, or when teams run their own. Whoever
//! took a message of a topic that it has no route for could only put it back, again and again. So while some worker has
//! no route for a topic, the instances that have one publish it to themselves. Which topics those are, and what
//! Postgres is told of it, is `upkeep::routes`'s.
//!
//! **Guarantee.** Nothing enters the own queue before [`SplitQueue::keep_all_but`]. **Limit.** What is there dies with
//! the process and is published again, as with the in-process queue: the instance's row says so before.
//!
//! May change: what is kept. Must not: a push to the own queue before Postgres knows of it.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};

use async_trait::async_trait;

use super::memory::MemoryQueue;
use super::{Consumer, Depth, Loss, Message, Pushed, Queue, Result, ServerFacts};

/// A shared queue with an own one beside it.
#[derive(Debug)]
pub struct SplitQueue {
    shared: Arc<dyn Queue>,
    own: Arc<MemoryQueue>,
    /// The topics that are shared; `None`: all. Its lock is held while a message enters the own queue, so that none
    /// does once all are shared.
    shared_topics: RwLock<Option<BTreeSet<String>>>,
}

impl SplitQueue {
    /// `shared`, and beside it a queue in this process for as many messages as `window` asks for.
    pub fn new(shared: Arc<dyn Queue>, window: u32) -> SplitQueue {
        SplitQueue { shared, own: Arc::new(MemoryQueue::shown_as("own", window)), shared_topics: RwLock::default() }
    }

    /// From now on only these topics go to the shared queue; `None`: all.
    pub fn keep_all_but(&self, shared_topics: Option<BTreeSet<String>>) {
        *self.shared_topics.write().unwrap_or_else(PoisonError::into_inner) = shared_topics;
    }

    /// Whether nothing is in the own queue, and nothing enters it.
    pub fn has_nothing_of_its_own(&self) -> bool {
        let shared = self.shared_topics.read().unwrap_or_else(PoisonError::into_inner);
        shared.is_none() && self.own.depth_now() == Depth::default()
    }

    /// What this process alone takes from.
    pub fn own(&self) -> Arc<dyn Queue> {
        Arc::clone(&self.own) as Arc<dyn Queue>
    }

    /// Pushes what is not shared. Returns the others, if any was not.
    fn push_own(&self, messages: &[Message]) -> Result<Option<Vec<Message>>> {
        let shared_topics = self.shared_topics.read().unwrap_or_else(PoisonError::into_inner);
        let Some(topics) = &*shared_topics else { return Ok(None) };
        let (shared, own): (Vec<Message>, Vec<Message>) =
            messages.iter().cloned().partition(|message| topics.contains(&*message.topic));
        if own.is_empty() {
            return Ok(None);
        }
        self.own.push_now(&own)?;
        Ok(Some(shared))
    }
}

#[async_trait]
impl Queue for SplitQueue {
    fn kind(&self) -> &'static str {
        self.shared.kind()
    }

    async fn push(&self, messages: &[Message]) -> Result<Pushed> {
        match self.push_own(messages)? {
            None => self.shared.push(messages).await,
            // An empty push would be a question more.
            Some(shared) if shared.is_empty() && !messages.is_empty() => Ok(Pushed { counter: 0 }),
            Some(shared) => self.shared.push(&shared).await,
        }
    }

    async fn consumer(&self, name: &str) -> Result<Box<dyn Consumer>> {
        self.shared.consumer(name).await
    }

    async fn check_loss(&self, seen: i64) -> Result<Option<Loss>> {
        self.shared.check_loss(seen).await
    }

    async fn depth(&self) -> Result<Depth> {
        let (shared, own) = (self.shared.depth().await?, self.own.depth_now());
        Ok(Depth { waiting: shared.waiting + own.waiting, in_flight: shared.in_flight + own.in_flight })
    }

    async fn server(&self) -> Result<Option<ServerFacts>> {
        self.shared.server().await
    }
}
