//! The shapes of Redis's answers about streams. Bodies are bytes: what someone else put there need not be text.

use redis::{FromRedisValue, ParsingError, Value};

/// An entry; `None` instead of its fields when it was deleted while pending.
pub(super) type Entry = (String, Option<Vec<(Vec<u8>, Vec<u8>)>>);

/// XREADGROUP on one stream; `None` when nothing arrived in time.
pub(super) type Read = Option<Vec<(String, Vec<Entry>)>>;

/// A line of XPENDING's long form: id, consumer, idle milliseconds, deliveries.
pub(super) type Pending = (String, String, u64, u32);

/// XPENDING's short form: only how many.
pub(super) struct PendingSummary(pub u64);

impl FromRedisValue for PendingSummary {
    fn from_redis_value(value: Value) -> Result<PendingSummary, ParsingError> {
        let parts = Vec::<Value>::from_redis_value(value)?;
        let count = parts.into_iter().next().ok_or_else(|| ParsingError::from("XPENDING without a count"))?;
        Ok(PendingSummary(u64::from_redis_value(count)?))
    }
}

/// One line of XINFO CONSUMERS: only the name and how much it holds.
pub(super) struct ConsumerInfo {
    pub name: String,
    pub pending: u64,
}

impl FromRedisValue for ConsumerInfo {
    fn from_redis_value(value: Value) -> Result<ConsumerInfo, ParsingError> {
        let mut fields = std::collections::HashMap::<String, Value>::from_redis_value(value)?;
        let mut field = |name: &'static str| fields.remove(name).ok_or_else(|| ParsingError::from(name));
        Ok(ConsumerInfo {
            name: String::from_redis_value(field("name")?)?,
            pending: u64::from_redis_value(field("pending")?)?,
        })
    }
}
