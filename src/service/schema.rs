//! The schema, before anything is asked of it.

use tracing::info;

use super::Error;
use crate::config::Config;
use crate::store::{self, command, connect, migrate, pooler};

/// Brings the schema up to date where this login may; else it must be new enough already. A newer schema is fine: an
/// old and a new binary run side by side during a deploy.
pub(super) async fn prepare(config: &Config) -> Result<(), Error> {
    // Before anything is set in a session that may not be ours.
    pooler::refuse_shared(config).await?;
    let session = command::Session::open(config).await.map_err(store::Error::from)?;
    if session.is_read_only() {
        return Err(store::Error::from(connect::Error::Standby).into());
    }
    migrate::check_server(&session).await?;
    let version = match migrate::schema_version(&session).await {
        Ok(version) => version,
        Err(error) => return Err(migrate::explain_unreadable(&session, error).await.into()),
    };
    let binary = migrate::newest();
    if version > binary || (version == binary && config.database.pooler) {
        return Ok(());
    }
    if config.database.pooler {
        return Err(migrate::Error::NeedsDirectConnection { schema: version, binary }.into());
    }
    let (mut client, connection) = store::dedicated(config).await?;
    let driver = tokio::spawn(connection);
    let outcome = migrate::run(&mut client, migrate::Install::IfChanged).await;
    driver.abort();
    match outcome {
        Ok(report) => {
            for name in report.applied {
                info!(migration = name, "applied");
            }
            Ok(())
        }
        // The daemon need not own the schema, if somebody who does has brought it up to date.
        Err(migrate::Error::MissingRights { .. }) if version == binary => Ok(()),
        Err(error) => Err(error.into()),
    }
}
