//! What operators do over HTTP: the same SQL functions as in psql, audited under the name of their token. And the steps
//! of their bulk actions, which instances work off.

use serde::{Deserialize, Serialize};
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, ToSql, Type};
use utoipa::ToSchema;

use super::refusal::Values;
use super::request::{Answer, RequestError};
use super::{Commit, Error, Query, Result, Store, query};

/// Calls a function of `sql/functions/` in a transaction that is audited under the name of a token, the first
/// parameter. Locks and indexes: those of the function.
macro_rules! operate {
    ($call:literal, [$($type:ident),*]) => {
        &Query {
            sql: concat!("SELECT outboxd.", $call, " FROM (SELECT set_config('outboxd.token', $1, true) OFFSET 0) t"),
            types: &[Type::TEXT, $(Type::$type),*],
            commit: Commit::Request,
        }
    };
}

/// What matches a filter of dead letters: counts it or, unless that is all that was asked for, changes it. What is
/// written, or fails, later than this begins is left out; `id_max` and `until` say where that is: given back with the
/// filter, exactly what was counted is changed. `$1` token · `$2` filter, a JSON object as text · `$3` whether only to
/// count. Locks and indexes: those of the function; notification_log_pkey.
macro_rules! on_dead_letters {
    ($function:literal) => {
        &Query {
            sql: concat!(
                "SELECT w.matched, w.done, w.bulk_id, (t.filter->>'id_max')::bigint AS id_max, t.filter->>'until' AS until
                   FROM (SELECT jsonb_build_object('id_max', (SELECT coalesce(max(l.id), 0) FROM outboxd.notification_log l),
                                                   'until', clock_timestamp()) || $2::text::jsonb AS filter,
                                set_config('outboxd.token', $1::text, true) OFFSET 0) t
                  CROSS JOIN LATERAL outboxd.",
                $function,
                "(t.filter, $3::boolean) w"
            ),
            types: &[Type::TEXT, Type::TEXT, Type::BOOL],
            commit: Commit::Request,
        }
    };
}

/// What is done to one notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
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

/// What is done to a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TopicAction {
    /// Its work waits.
    Pause,
    /// Ends that.
    Resume,
}

/// What is done to a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ScheduleAction {
    /// Keeps it from running.
    Pause,
    /// Ends that.
    Resume,
    /// Ends the schedule.
    Drop,
}

/// What is done to a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChannelAction {
    /// Its work waits.
    Pause,
    /// Ends that.
    Resume,
    /// Tries it, or one origin of it, with one call.
    Probe,
    /// Ends an open circuit or a provider's Retry-After.
    CloseCircuit,
}

/// What is done to all that match a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = Action)]
pub enum BulkAction {
    /// Dead letters back to work.
    Retry,
    /// Dead letters that nobody will retry: FAILED → CANCELED.
    Discard,
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
    /// The newest notification that was counted. Given back as `id_max` of the filter, with `until` where there is one,
    /// it means the same ones.
    pub id_max: i64,
    /// For retry and discard: only what failed before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
}

/// What one batch of a bulk action did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BulkStep {
    /// Which action.
    pub id: i64,
    /// Rows changed.
    pub changed: i64,
    /// Whether that was the last.
    pub ended: bool,
}

impl Store {
    /// Does it to this one, as the token of this name.
    pub async fn act_on_notification(&self, token: &str, action: NotificationAction, id: i64) -> Answer<Acted> {
        let no_longer = |what: &str| RequestError::wrong_state(format!("notification {id} cannot be {what}"));
        let params: [&(dyn ToSql + Sync); 2] = [&token, &id];
        let (outcome, new_id) = match action {
            NotificationAction::Retry => {
                if !self.ask_one::<bool>(operate!("retry($2)", [INT8]), &params).await? {
                    return Err(no_longer("retried: it is neither FAILED nor CANCELED (a SENT one can be resent)"));
                }
                ("queued".to_owned(), None)
            }
            NotificationAction::Cancel => {
                let outcome: String = self.ask_one(operate!("cancel($2)", [INT8]), &params).await?;
                if let Some(why) = outcome.strip_prefix("nothing to cancel: ") {
                    return Err(no_longer(&format!("canceled: {why}")));
                }
                (outcome, None)
            }
            NotificationAction::Resend => {
                let new_id = self.ask_one(operate!("resend($2)", [INT8]), &params).await?;
                ("resent".to_owned(), Some(new_id))
            }
            NotificationAction::Discard => {
                if !self.ask_one::<bool>(operate!("discard($2)", [INT8]), &params).await? {
                    return Err(no_longer("discarded: it is not FAILED (one on its way can be canceled)"));
                }
                ("discarded".to_owned(), None)
            }
        };
        Ok(Acted { id, outcome, new_id })
    }

    /// Does it to the topic of this name.
    pub async fn act_on_topic(&self, token: &str, action: TopicAction, topic: &str) -> Answer<()> {
        let query: &Query = match action {
            TopicAction::Pause => operate!("pause($2)", [TEXT]),
            TopicAction::Resume => operate!("resume($2)", [TEXT]),
        };
        self.ask(query, &[&token, &topic]).await.map(drop)
    }

    /// Pauses, resumes or ends the schedule of this name; how many prepared notifications that canceled.
    pub async fn act_on_schedule(&self, token: &str, action: ScheduleAction, schedule: &str) -> Answer<i64> {
        let params: [&(dyn ToSql + Sync); 2] = [&token, &schedule];
        let (verb, canceled) = match action {
            ScheduleAction::Pause => ("pause", self.ask_one(operate!("pause_schedule($2)", [TEXT]), &params).await),
            ScheduleAction::Drop => ("drop", self.ask_one(operate!("drop_schedule($2)", [TEXT]), &params).await),
            ScheduleAction::Resume => {
                let resumed = self.ask(operate!("resume_schedule($2)", [TEXT]), &params).await;
                ("resume", resumed.map(|_| 0))
            }
        };
        // All of it or nothing: what was prepared for a run is not canceled in parts.
        canceled.map_err(|error| match error {
            RequestError::OutOfTime => RequestError::wrong_state(format!(
                "to {verb} {schedule} takes longer than a request may, and nothing was changed: very much is prepared for its \
                 next slot, or another transaction holds it; the command has the time: outboxd schedule {verb} {schedule}"
            )),
            error => error,
        })
    }

    /// Does it to a channel. Of its circuits the one of this origin is meant; an empty origin: that of the channel.
    pub async fn act_on_channel(&self, token: &str, action: ChannelAction, channel: &str, origin: &str) -> Answer<()> {
        let params: [&(dyn ToSql + Sync); 3] = [&token, &channel, &origin];
        let (query, params): (&Query, _) = match action {
            ChannelAction::Pause => (operate!("pause_channel($2)", [TEXT]), &params[..2]),
            ChannelAction::Resume => (operate!("resume_channel($2)", [TEXT]), &params[..2]),
            ChannelAction::Probe => (operate!("probe_channel($2, $3)", [TEXT, TEXT]), &params[..]),
            ChannelAction::CloseCircuit => (operate!("close_circuit($2, $3)", [TEXT, TEXT]), &params[..]),
        };
        self.ask(query, params).await.map(drop)
    }

    /// Counts what matches the filter, a JSON object, and unless it is a dry run changes it.
    pub async fn act_on_all(&self, token: &str, action: BulkAction, filter: &str, run: BulkRun) -> Answer<Bulk> {
        let query: &Query = match action {
            BulkAction::Retry => on_dead_letters!("retry_where"),
            BulkAction::Discard => on_dead_letters!("discard_where"),
            BulkAction::Cancel => query!("api/cancel_where", Request, [TEXT, TEXT, BOOL]),
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
        let query = operate!("replay_events($2, $3::timestamptz)", [TEXT, TEXT]);
        self.ask_one(query, &[&token, &topic, &since]).await
    }

    /// Ends a bulk action after its current batch.
    pub async fn stop_bulk(&self, token: &str, id: i64) -> Answer<()> {
        match self.ask_one::<bool>(operate!("stop_bulk($2)", [INT8]), &[&token, &id]).await? {
            true => Ok(()),
            false => Err(RequestError::wrong_state(format!("bulk action {id} had ended"))),
        }
    }

    /// One batch of the oldest open bulk action. `None`: there is none, or another instance is at it.
    pub async fn step_bulk(&self) -> Result<Option<BulkStep>> {
        let rows = self.query(query!("upkeep/step_bulk_action", Durable, []), &[]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        Ok(Some(BulkStep { id: row.value(0)?, changed: row.value(1)?, ended: row.value(2)? }))
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

fn first(rows: &[Row]) -> Result<&Row> {
    rows.first().ok_or_else(|| Error::Bug("a function gave no row".to_owned()))
}
