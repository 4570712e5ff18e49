-- Big actions of operators: the call only writes this row, running instances work it off in small batches, one
-- instance at a time. `cursor_part`, `cursor_at` and `cursor_id` say how far it is; what happened after `started_at` is not touched, so
-- that a row that fails again is not retried for ever.
CREATE TABLE outboxd.bulk_action (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    action     text NOT NULL,
    filter     jsonb NOT NULL,
    actor      text NOT NULL,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at   timestamptz,
    stopped_by text,
    matched    bigint NOT NULL,
    done       bigint NOT NULL DEFAULT 0,
    rows_max   bigint,
    phase      smallint NOT NULL DEFAULT 0,
    cursor_part text NOT NULL DEFAULT '',
    cursor_at  timestamptz NOT NULL DEFAULT '-infinity',
    cursor_id  bigint NOT NULL DEFAULT 0,
    -- The batch before, while it waits to be sent: the next one waits for most of it.
    batch      bigint[] NOT NULL DEFAULT '{}',
    stepped_at timestamptz,
    next_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    error      text,
    CONSTRAINT bulk_actions_retry_or_cancel CHECK (action IN ('retry', 'cancel')),
    CONSTRAINT only_ended_bulk_actions_are_stopped CHECK (stopped_by IS NULL OR ended_at IS NOT NULL)
);
CREATE INDEX bulk_action_open ON outboxd.bulk_action (id) WHERE ended_at IS NULL;
