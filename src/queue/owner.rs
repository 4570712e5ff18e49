//! Whose keys they are: one installation's, and of one database of it.
//!
//! ```text
//! {prefix}:v1:owner   hash   install_id, database
//! ```
//!
//! Asked on every new connection, before anything is pushed on it, and every few seconds on one that is used. Two
//! installations under one prefix would take each other's messages and events, so the second is refused. A database that
//! was copied has its original's installation until it is adopted: meanwhile it does not get the keys. Where the key is
//! gone (FLUSHALL), it is written again; if another came first, the keys are left to it.

use std::sync::{Mutex, PoisonError};

use redis::aio::MultiplexedConnection;

use super::failure::Failure;

/// KEYS: owner. ARGV: installation, database, whether it was moved here, the installation that this process worked for
/// before in the same database. Returns who has the keys, if it is another.
/// A script that has written once may go on when memory is short: hence PERSIST.
const CLAIM: &str = r"
local held = redis.call('HMGET', KEYS[1], 'install_id', 'database')
if held[1] == ARGV[1] and held[2] == ARGV[2] then return {} end
local is_moved = held[1] == ARGV[1] and ARGV[3] == '1'
local is_made_anew = held[1] == ARGV[4] and held[2] == ARGV[2]
if held[1] and not is_moved and not is_made_anew then return held end
redis.call('PERSIST', KEYS[1])
redis.call('HSET', KEYS[1], 'install_id', ARGV[1], 'database', ARGV[2])
return {}
";

/// An installation in its database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// As in every `webhook-id`.
    pub install_id: String,
    /// The server's data and the database in it.
    pub database: String,
    /// An operator said that it is the same installation, moved to this database.
    pub is_moved: bool,
}

/// Who this process works for, as Postgres said last. Until it has, nothing is asked.
#[derive(Debug, Default)]
pub struct Owner(Mutex<Known>);

#[derive(Debug, Clone, Default)]
struct Known {
    now: Option<Identity>,
    /// The installation before, in the same database: the schema was made anew.
    before: Option<String>,
}

impl Owner {
    /// Postgres says so.
    pub fn set(&self, identity: Identity) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = known.now.take_if(|before| before.install_id != identity.install_id) {
            known.before = (before.database == identity.database).then_some(before.install_id);
        }
        known.now = Some(identity);
    }

    /// Refuses keys that are another's.
    pub(super) async fn claim(&self, connection: &mut MultiplexedConnection, key: &str) -> Result<(), Failure> {
        let Known { now, before } = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(Identity { install_id, database, is_moved }) = now else { return Ok(()) };
        let mut claim = redis::cmd("EVAL");
        claim.arg(CLAIM).arg(1).arg(key).arg(&install_id).arg(&database).arg(u8::from(is_moved));
        claim.arg(before.unwrap_or_default());
        let held: Vec<String> = claim.query_async(connection).await?;
        let [holder, elsewhere] = held.as_slice() else { return Ok(()) };
        if *holder == install_id {
            return Err(Failure::NoPrimary(format!(
                "the keys at {key} are those of installation {holder} in another database ({elsewhere}); if this is that \
                 installation, moved: outboxd adopt --same; if not, set queue.prefix (OUTBOXD_QUEUE_PREFIX) to another"
            )));
        }
        Err(Failure::Unusable(format!(
            "the keys at {key} are those of another installation, {holder}, and this is {install_id}: set queue.prefix \
             (OUTBOXD_QUEUE_PREFIX) to another; if that installation is gone: redis-cli DEL '{key}'"
        )))
    }
}
