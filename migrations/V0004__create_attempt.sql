-- Every attempt that did not end in a recorded success: failed, unknown, late, duplicate.

CREATE TABLE outboxd.attempt (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    notification_id bigint NOT NULL,
    token           integer NOT NULL,
    number          integer,
    started_at      timestamptz,
    ended_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    duration_ms     integer,
    instance        integer,
    http_status     smallint,
    outcome         text NOT NULL,
    channel         text,
    error           text,
    response        text,

    CONSTRAINT outcome_is_known_to_us CHECK (outcome IN ('failed', 'unknown', 'late failure', 'duplicate', 'late success'))
);

CREATE INDEX attempt_notification ON outboxd.attempt (notification_id);
