//! `outboxd adopt`: says what a database is that was copied or moved.

use std::time::Duration;

use tokio_postgres::types::Type;

use super::{Exit, Failure, database, print};
use crate::config::Sources;
use crate::printable;
use crate::store::command::Session;

const EXAMPLES: &str = "\
Examples:
  outboxd adopt --same       moved, restored or upgraded: all goes on
  outboxd adopt --new        a clone: what it brought is canceled
  outboxd adopt --new --replaces 4be0643f1d98
                             a copy of the files, before it is started: nothing
                             tells it from its original but you

Safe to repeat, and while instances run. In SQL: SELECT * FROM outboxd.adopt('same').";

/// Says what a database is that was copied or moved: the same installation, or a new one.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// It is the same installation, moved: its backlog and its schedules go on.
    #[arg(long, required_unless_present = "new", conflicts_with = "new")]
    same: bool,
    /// It is a clone: its backlog is canceled, its schedules are paused, and it gets an identity of its own.
    #[arg(long)]
    new: bool,
    /// The id of the installation that the clone was made of: outboxd refuses any other.
    #[arg(long, value_name = "INSTALL_ID", requires = "new")]
    replaces: Option<String>,
}

/// Between calls that found somebody else at work.
const PAUSE: Duration = Duration::from_millis(20);

pub(super) async fn run(args: &Args, sources: &Sources) -> Result<Exit, Failure> {
    let session = database::connect(sources).await?;
    let adopt_as = if args.new { "new" } else { "same" };
    let mut replaces = args.replaces.as_deref();
    loop {
        let adopted = adopt(&session, adopt_as, replaces).await;
        let Adopted { phase, install_id, note } =
            adopted.map_err(|error| Failure::new(Exit::Runtime, super::schedule::explain(&error)))?;
        if phase == "own" {
            print(&format!("installation {}: {}\n", printable::line(&install_id), printable::line(&note)))?;
            return Ok(Exit::Clean);
        }
        // Said once; from here on only what is left is worked off.
        replaces = None;
        tokio::time::sleep(PAUSE).await;
    }
}

struct Adopted {
    phase: String,
    install_id: String,
    note: String,
}

async fn adopt(session: &Session, adopt_as: &str, replaces: Option<&str>) -> Result<Adopted, tokio_postgres::Error> {
    let sql = "SELECT a.phase, a.install_id, a.note FROM outboxd.adopt($1, $2) a";
    let rows = session.query(sql, &[(&adopt_as, Type::TEXT), (&replaces, Type::TEXT)]).await?;
    let text = |column: usize| rows.first().map_or(Ok(String::new()), |row| row.try_get(column));
    Ok(Adopted { phase: text(0)?, install_id: text(1)?, note: text(2)? })
}
