//! Writing notifications for callers over HTTP.

use chrono::{DateTime, Utc};
use tokio_postgres::types::ToSql;

use super::refusal::Values;
use super::request::{Answer, RequestError};
use super::{Error, Store, query};

/// One notification to write, as `notify()` takes it. JSON as text: only Postgres parses it.
#[derive(Debug, Clone, Copy)]
pub struct NewNotification<'a> {
    /// What it is about.
    pub topic: &'a str,
    /// To whom.
    pub recipient: &'a str,
    /// What; JSON.
    pub payload: &'a str,
    /// Not before; `None`: now.
    pub send_at: Option<DateTime<Utc>>,
    /// Once only under this key.
    pub dedup_key: Option<&'a str>,
    /// One after the other under this key.
    pub ordering_key: Option<&'a str>,
    /// Not after.
    pub expires_at: Option<DateTime<Utc>>,
    /// An object of strings; JSON.
    pub headers: Option<&'a str>,
}

impl NewNotification<'_> {
    /// The parameters of `producer/notify`, in their order.
    pub(crate) fn parameters(&self) -> [&(dyn ToSql + Sync); 8] {
        [
            &self.topic,
            &self.recipient,
            &self.payload,
            &self.send_at,
            &self.dedup_key,
            &self.ordering_key,
            &self.expires_at,
            &self.headers,
        ]
    }
}

/// What tells a request from others.
#[derive(Debug, Clone, Copy)]
pub struct Idempotency<'a> {
    /// The caller's own key.
    pub key: &'a str,
    /// SHA-256 of the body.
    pub digest: &'a [u8],
}

/// What became of a request that wrote notifications.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Posted {
    /// They are written; ids in the order given.
    Done(Vec<i64>),
    /// They were written by the same request before.
    Replayed(Vec<i64>),
    /// The key belongs to another request.
    OtherBody,
    /// The same key is at work in another transaction.
    UnderWay,
}

impl Store {
    /// One notification; its id. One statement, one round trip.
    pub async fn notify(&self, new: &NewNotification<'_>) -> Answer<i64> {
        let query = query!("producer/notify", Request, [TEXT, TEXT, TEXT, TIMESTAMPTZ, TEXT, TEXT, TIMESTAMPTZ, TEXT]);
        let rows = self.ask(query, &new.parameters()).await?;
        let row = rows.first().ok_or_else(|| Error::Bug("notify() gave no id".to_owned()))?;
        Ok(row.value(0)?)
    }

    /// Several notifications in one transaction, or any number under a key. `items` is a JSON array of objects with the
    /// names of `notify()`'s arguments.
    pub async fn post(&self, token: &str, once: Option<Idempotency<'_>>, items: &str) -> Answer<Posted> {
        let query = query!("api/post", Request, [TEXT, TEXT, BYTEA, TEXT]);
        let (key, digest) = once.map(|once| (once.key, once.digest)).unzip();
        let rows = self.ask(query, &[&token, &key, &digest, &items]).await?;
        let row = rows.first().ok_or_else(|| Error::Bug("_post() gave no row".to_owned()))?;
        let ids = || row.value::<Vec<i64>>(1);
        match row.value::<&str>(0)? {
            "done" => Ok(Posted::Done(ids()?)),
            "replayed" => Ok(Posted::Replayed(ids()?)),
            "other body" => Ok(Posted::OtherBody),
            "under way" => Ok(Posted::UnderWay),
            other => Err(RequestError::Store(Error::Bug(format!("_post() said {other:?}")))),
        }
    }
}
