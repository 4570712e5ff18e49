//! Keeps two migrations apart.
//!
//! **Guarantee.** Whoever may not migrate delays no migration. **Limit.** While a stranger holds the lock, two are not kept
//! apart.

use std::time::Duration;

use tokio_postgres::Client;
use tracing::{info, warn};

use super::{Error, SCHEMA};

/// `outboxd migrate` in ASCII, folded: unlikely to meet another program's lock.
const LOCK: i64 = 0x6f75_7462_6f78_6401;
/// Between tries to take it.
const LOCK_POLL: Duration = Duration::from_millis(100);
/// Who holds it, and whether they could be migrating: those who may act for the owner of the schema, or create it while
/// there is none, and the daemon, which looks whether there is something to migrate. Those first. A prepared transaction
/// has no session, and none of ours is one. In a session that reads an audience foreign code runs under the daemon's login:
/// it is told by its mark, as in `_is_held_by_us.sql`.
const HOLDERS: &str = "SELECT coalesce(CASE WHEN n.nspowner IS NULL THEN has_database_privilege(a.usesysid, current_database(), 'CREATE')
                              ELSE pg_has_role(a.usesysid, n.nspowner, 'MEMBER') OR coalesce(pg_has_role(a.usesysid, s.oid, 'MEMBER'), false) END, false)
        AND NOT EXISTS (SELECT FROM pg_locks m WHERE m.pid = l.pid AND m.locktype = 'advisory' AND m.objsubid = 2
                           AND m.classid = 1869968482) AS is_ours,
        CASE WHEN a.pid IS NULL THEN 'a prepared transaction' ELSE format('pid %s of %s', a.pid, pg_get_userbyid(a.usesysid)) END
   FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
   LEFT JOIN pg_namespace n ON n.nspname = $2 LEFT JOIN pg_roles s ON s.rolname = 'outboxd_service'
  WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
    AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
    AND l.classid = ($1::bigint >> 32 & 4294967295)::oid AND l.objid = ($1::bigint & 4294967295)::oid
  ORDER BY 1 DESC";

/// Waits for whoever is migrating. Any login of the database may take any advisory lock, so one that is held by nobody who
/// could migrate does not count. It is tried and not waited for: a stranger could stand before us.
///
/// Interleavings: while a stranger holds it, two migrations are not kept apart. One of them then fails on what the other
/// has made, in a transaction of its own, and is right the next time.
pub(super) async fn take(client: &Client) -> Result<(), Error> {
    let mut is_told = false;
    loop {
        if client.query_one("SELECT pg_try_advisory_lock($1)", &[&LOCK]).await?.get(0) {
            return Ok(());
        }
        let holders = client.query(HOLDERS, &[&LOCK, &SCHEMA]).await?;
        match holders.first().map(|holder| (holder.get::<_, bool>(0), holder.get::<_, String>(1))) {
            Some((false, who)) => {
                warn!(who, "somebody who does not migrate holds the lock of migrations; going on without it");
                return Ok(());
            }
            Some((true, _)) if !is_told => {
                info!("another instance is migrating; waiting for it");
                is_told = true;
            }
            // It has ended meanwhile, or it goes on.
            _ => {}
        }
        tokio::time::sleep(LOCK_POLL).await;
    }
}

/// The statement that gives it back; of no effect without it.
pub(super) fn give_back() -> String {
    format!("SELECT pg_advisory_unlock({LOCK})")
}
