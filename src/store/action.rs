//! What operators do over HTTP: the same SQL functions as in psql, audited under the name of their token.

use serde::Serialize;
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, ToSql};
use utoipa::ToSchema;

use super::refusal::Values;
use super::request::{Answer, RequestError};
use super::{Error, Query, Store, query};

/// What is done to one notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotificationAction {
    /// FAILED or CANCELED → QUEUED.
    Retry,
    /// Takes it back.
    Cancel,
    /// Makes a new notification of a SENT one.
    Resend,
    /// FAILED → CANCELED.
    Discard,
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Acted {
    /// The notification.
    pub id: i64,
    /// What happened: `queued`, `canceled`, `in flight: no further attempt`, `resent` or `discarded`.
    pub outcome: String,
    /// The new notification, where one was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_id: Option<i64>,
}

/// What is done to a topic or channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldAction {
    /// Holds a topic.
    PauseTopic,
    /// Ends that.
    ResumeTopic,
    /// Holds a channel.
    PauseChannel,
    /// Ends that.
    ResumeChannel,
}

/// What is done to a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScheduleAction {
    /// Keeps it from running.
    Pause,
    /// Ends that.
    Resume,
    /// Ends the schedule.
    Drop,
}

/// What is done to what holds a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CircuitAction {
    /// Tries it with one call.
    Probe,
    /// Ends it.
    Close,
}

/// What is done to all that match a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BulkKind {
    /// Dead letters back to work.
    Retry,
    /// What waits is taken back.
    Cancel,
}

/// What a bulk action found and did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Bulk {
    /// How many match, exactly; a million at most are counted.
    pub matched: i64,
    /// How many are changed. 0 for a dry run, and for one that goes on in the background.
    pub done: i64,
    /// The action in the background, if it goes on there.
    pub bulk_id: Option<i64>,
    /// The newest notification that was looked at. Given back as `id_max` of the filter, with `until` where there is one,
    /// it means the same ones.
    pub id_max: i64,
    /// For retry: only what failed before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
}

impl Store {
    /// Does it to this one, as the token of this name.
    pub async fn act(&self, token: &str, action: NotificationAction, id: i64) -> Answer<Acted> {
        let no_longer = |what: &str| RequestError::wrong_state(format!("notification {id} cannot be {what}"));
        let params: [&(dyn ToSql + Sync); 2] = [&token, &id];
        let (outcome, new_id) = match action {
            NotificationAction::Retry => {
                let query = query!("api/retry", Request, [TEXT, INT8]);
                if !self.ask_one::<bool>(query, &params).await? {
                    return Err(no_longer("retried: it is neither FAILED nor CANCELED (a SENT one can be resent)"));
                }
                ("queued".to_owned(), None)
            }
            NotificationAction::Cancel => {
                let outcome: String = self.ask_one(query!("api/cancel", Request, [TEXT, INT8]), &params).await?;
                if let Some(why) = outcome.strip_prefix("nothing to cancel: ") {
                    return Err(no_longer(&format!("canceled: {why}")));
                }
                (outcome, None)
            }
            NotificationAction::Resend => {
                let new_id = self.ask_one(query!("api/resend", Request, [TEXT, INT8]), &params).await?;
                ("resent".to_owned(), Some(new_id))
            }
            NotificationAction::Discard => {
                if !self.ask_one::<bool>(query!("api/discard", Request, [TEXT, INT8]), &params).await? {
                    return Err(no_longer("discarded: it is not FAILED (one on its way can be canceled)"));
                }
                ("discarded".to_owned(), None)
            }
        };
        Ok(Acted { id, outcome, new_id })
    }

    /// Holds or frees the topic or channel of this name.
    pub async fn hold(&self, token: &str, action: HoldAction, name: &str) -> Answer<()> {
        let query: &Query = match action {
            HoldAction::PauseTopic => query!("api/pause_topic", Request, [TEXT, TEXT]),
            HoldAction::ResumeTopic => query!("api/resume_topic", Request, [TEXT, TEXT]),
            HoldAction::PauseChannel => query!("api/pause_channel", Request, [TEXT, TEXT]),
            HoldAction::ResumeChannel => query!("api/resume_channel", Request, [TEXT, TEXT]),
        };
        self.ask(query, &[&token, &name]).await.map(|_| ())
    }

    /// Pauses, resumes or ends the schedule of this name; how many prepared notifications that canceled.
    pub async fn act_on_schedule(&self, token: &str, action: ScheduleAction, name: &str) -> Answer<i64> {
        let params: [&(dyn ToSql + Sync); 2] = [&token, &name];
        match action {
            ScheduleAction::Pause => self.ask_one(query!("api/pause_schedule", Request, [TEXT, TEXT]), &params).await,
            ScheduleAction::Drop => self.ask_one(query!("api/drop_schedule", Request, [TEXT, TEXT]), &params).await,
            ScheduleAction::Resume => {
                self.ask(query!("api/resume_schedule", Request, [TEXT, TEXT]), &params).await?;
                Ok(0)
            }
        }
    }

    /// Probes or closes the circuit of a channel, or of one origin of it; an empty origin: as a whole.
    pub async fn tend_circuit(&self, token: &str, action: CircuitAction, channel: &str, origin: &str) -> Answer<()> {
        let query: &Query = match action {
            CircuitAction::Probe => query!("api/probe_channel", Request, [TEXT, TEXT, TEXT]),
            CircuitAction::Close => query!("api/close_circuit", Request, [TEXT, TEXT, TEXT]),
        };
        self.ask(query, &[&token, &channel, &origin]).await.map(|_| ())
    }

    /// Counts what matches the filter, a JSON object, and unless it is a dry run changes it.
    pub async fn bulk(&self, token: &str, kind: BulkKind, filter: &str, run: BulkRun) -> Answer<Bulk> {
        let query: &Query = match kind {
            BulkKind::Retry => query!("api/retry_where", Request, [TEXT, TEXT, BOOL]),
            BulkKind::Cancel => query!("api/cancel_where", Request, [TEXT, TEXT, BOOL]),
        };
        let rows = self.ask(query, &[&token, &filter, &(run == BulkRun::Dry)]).await?;
        let row = first(&rows)?;
        Ok(Bulk {
            matched: row.value(0)?,
            done: row.value(1)?,
            bulk_id: row.value(2)?,
            id_max: row.value(3)?,
            until: row.value(4)?,
        })
    }

    /// Appends the events of a topic again, from a time on; how many.
    pub async fn replay_events(&self, token: &str, topic: &str, since: &str) -> Answer<i64> {
        self.ask_one(query!("api/replay_events", Request, [TEXT, TEXT, TEXT]), &[&token, &topic, &since]).await
    }

    /// Ends a bulk action after its current batch.
    pub async fn stop_bulk(&self, token: &str, id: i64) -> Answer<()> {
        let query = query!("api/stop_bulk", Request, [TEXT, INT8]);
        match self.ask_one::<bool>(query, &[&token, &id]).await? {
            true => Ok(()),
            false => Err(RequestError::wrong_state(format!("bulk action {id} had ended"))),
        }
    }

    async fn ask_one<T: for<'a> FromSql<'a>>(&self, query: &Query, params: &[&(dyn ToSql + Sync)]) -> Answer<T> {
        Ok(first(&self.ask(query, params).await?)?.value(0)?)
    }
}

/// Whether a bulk action changes anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BulkRun {
    /// It only counts.
    Dry,
    /// It does.
    Real,
}

fn first(rows: &[Row]) -> Result<&Row, Error> {
    rows.first().ok_or_else(|| Error::Bug("a function gave no row".to_owned()))
}
