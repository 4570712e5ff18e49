-- Campaigns that repeat: at each slot of `cron` in `timezone` everybody in `audience` gets a notification.
--
-- `next_slot` is worked out by an instance: NULL, it has not done so yet; with an `error`, it cannot. `version` goes up
-- with each change, so that what was worked out for the schedule as it was is not used for what it is now.

CREATE TABLE outboxd.schedule (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name       text NOT NULL UNIQUE,
    cron       text NOT NULL,
    timezone   text NOT NULL,
    topic      text NOT NULL,
    audience   text NOT NULL,
    lead       interval NOT NULL,
    spread     interval NOT NULL,
    catch_up   interval NOT NULL,
    -- NULL: what it sends does not expire.
    expires_after interval,
    version    integer NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Slots after this time count. Those before it that nobody has dealt with passed while it was paused.
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    paused_at  timestamptz,
    next_slot  timestamptz,
    error      text,

    CONSTRAINT name_has_1_to_200_bytes CHECK (octet_length(name) BETWEEN 1 AND 200),
    CONSTRAINT topic_has_1_to_200_bytes CHECK (octet_length(topic) BETWEEN 1 AND 200),
    CONSTRAINT lead_is_up_to_a_day CHECK (lead BETWEEN '0' AND '1 day'),
    CONSTRAINT spread_is_up_to_a_day CHECK (spread BETWEEN '0' AND '1 day'),
    CONSTRAINT catch_up_is_up_to_a_week CHECK (catch_up BETWEEN '0' AND '7 days'),
    CONSTRAINT expires_after_is_a_second_to_30_days CHECK (expires_after BETWEEN '1 s' AND '30 days'),
    CONSTRAINT schedules_with_an_error_have_no_slot CHECK (error IS NULL OR next_slot IS NULL)
);

-- One row per slot of a schedule, as it was when the slot came near: history that outlives the schedule.
--
--   preparing ─► prepared ─► released        missed: nobody ran in time
--        └─► failed     └─► canceled         canceled: the schedule was dropped, changed or paused
--                                            paused: it passed while the schedule was paused
--
-- The audience is read once, in one statement, and staged in schedule_recipient (`attempt` counts the readings; `staged`
-- is the one that stands), and copied from there into notification_log in chunks: `position` says how far. A crash between
-- any two statements is gone on from.

CREATE TABLE outboxd.schedule_run (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    schedule_id bigint NOT NULL,
    version     integer NOT NULL,
    schedule    text NOT NULL,
    topic       text NOT NULL,
    audience    text NOT NULL,
    spread      interval NOT NULL,
    expires_after interval,
    slot        timestamptz NOT NULL,
    -- The slot, or later if it was missed: the spread begins here.
    release_at  timestamptz NOT NULL,
    state       text NOT NULL,
    attempt     integer NOT NULL DEFAULT 0,
    -- Readings begun since the last one that came to its end.
    tries       integer NOT NULL DEFAULT 0,
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
    CONSTRAINT state_is_known_to_us CHECK (state IN ('preparing', 'prepared', 'released', 'missed', 'paused', 'failed', 'canceled')),
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
    -- What notification_log would refuse fails the reading, not each copy of a chunk.
    CONSTRAINT recipient_has_1_to_2048_bytes CHECK (octet_length(recipient) BETWEEN 1 AND 2048),
    CONSTRAINT payload_has_at_most_256_kib CHECK (octet_length(payload::text) <= 262144)
);

-- What the dedup keys and the times of a run's notifications are made with: whoever sees those cannot try recipients
-- that he has in mind. A table of its own, which no role but outboxd_service reads.
CREATE TABLE outboxd.schedule_secret (
    only_row boolean PRIMARY KEY DEFAULT true,
    secret   bytea NOT NULL DEFAULT sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())),
    CONSTRAINT there_is_one_secret CHECK (only_row)
);
INSERT INTO outboxd.schedule_secret DEFAULT VALUES;
