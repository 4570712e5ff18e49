-- One row per slot of a schedule, as it was when the slot came near: history that outlives the schedule.
--
--   preparing ─► prepared ─► released        missed: nobody ran in time
--        └─► failed     └─► canceled         canceled: the schedule was dropped or changed
--
-- The audience is read once, in one statement, into schedule_recipient (`attempt` counts the readings; `staged` is the
-- one that stands), and copied from there into notification_log in chunks: `position` says how far. A crash between
-- any two statements is gone on from.

CREATE TABLE outboxd.schedule_run (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    schedule_id bigint NOT NULL,
    version     integer NOT NULL,
    schedule    text NOT NULL,
    topic       text NOT NULL,
    audience    text NOT NULL,
    spread      interval NOT NULL,
    slot        timestamptz NOT NULL,
    -- The slot, or later if it was missed: the spread begins here.
    release_at  timestamptz NOT NULL,
    state       text NOT NULL,
    attempt     integer NOT NULL DEFAULT 0,
    staged      integer,
    position    bigint NOT NULL DEFAULT 0,
    recipients  bigint,
    prepared    bigint NOT NULL DEFAULT 0,
    released    bigint NOT NULL DEFAULT 0,
    error       text,
    started_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    prepared_at timestamptz,
    ended_at    timestamptz,

    CONSTRAINT a_slot_runs_once UNIQUE (schedule_id, version, slot),
    CONSTRAINT state_is_known_to_us CHECK (state IN ('preparing', 'prepared', 'released', 'missed', 'failed', 'canceled')),
    CONSTRAINT ended_runs_and_only_they_have_ended_at CHECK ((state IN ('preparing', 'prepared')) = (ended_at IS NULL)),
    CONSTRAINT failed_runs_have_an_error CHECK (state <> 'failed' OR error IS NOT NULL)
) WITH (fillfactor = 70);
CREATE INDEX schedule_run_open ON outboxd.schedule_run (id) WHERE ended_at IS NULL OR staged IS NOT NULL;
CREATE INDEX schedule_run_slot ON outboxd.schedule_run (slot);

-- Unlogged: a million rows that live for minutes need not be written twice. A server crash empties it; the run
-- then reads its audience again, and who has a notification already gets no second one.
CREATE UNLOGGED TABLE outboxd.schedule_recipient (
    run_id    bigint NOT NULL,
    attempt   integer NOT NULL,
    n         bigint NOT NULL,
    recipient text NOT NULL,
    payload   jsonb NOT NULL,
    PRIMARY KEY (run_id, attempt, n),
    CONSTRAINT recipient_has_1_to_4096_characters CHECK (length(recipient) BETWEEN 1 AND 4096)
);

INSERT INTO outboxd.retention_walk (name) VALUES ('schedule_run');
