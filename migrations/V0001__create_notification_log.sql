-- The record: one row per notification, kept for its retention.
--
-- fillfactor 85 leaves room for the one HOT update of a normal life, QUEUED → SENT. No index may name
-- `status` or `finished_at`: it would make every outcome a non-HOT update. The generated columns `due_at`
-- and `failed_at` are NULL before and after that update, so their partial indexes do not stand in its way.
--
-- Postgres parses every CHECK anew for every statement, so their wording is terse: short constants, no lists.
-- notify() says more, and in words.

CREATE TYPE outboxd.status AS ENUM ('PENDING', 'QUEUED', 'SENT', 'FAILED', 'CANCELED');

CREATE TABLE outboxd.notification_log (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    send_at      timestamptz NOT NULL DEFAULT now(),
    expires_at   timestamptz,
    finished_at  timestamptz,
    due_at       timestamptz GENERATED ALWAYS AS (CASE WHEN status = 'PENDING' THEN send_at END) STORED,
    failed_at    timestamptz GENERATED ALWAYS AS (CASE WHEN status = 'FAILED' THEN finished_at END) STORED,
    status       outboxd.status NOT NULL DEFAULT 'PENDING',
    epoch        integer NOT NULL DEFAULT 0,
    attempts     integer NOT NULL DEFAULT 0,
    http_status  smallint,
    topic        text NOT NULL,
    recipient    text NOT NULL,
    payload      jsonb NOT NULL,
    headers      jsonb,
    dedup_key    text,
    ordering_key text,
    channel      text,
    error        text,

    -- Bytes where an index must hold the value: 200 + 512 fit a B-tree page in any script.
    CONSTRAINT topic_has_1_to_200_bytes CHECK (octet_length(topic) BETWEEN 1 AND 200),
    CONSTRAINT recipient_has_1_to_4096_characters CHECK (length(recipient) BETWEEN 1 AND 4096),
    CONSTRAINT dedup_key_has_1_to_512_bytes CHECK (octet_length(dedup_key) BETWEEN 1 AND 512),
    CONSTRAINT ordering_key_has_1_to_512_bytes CHECK (octet_length(ordering_key) BETWEEN 1 AND 512),
    CONSTRAINT headers_are_an_object CHECK (jsonb_typeof(headers) = 'object'),
    CONSTRAINT times_are_finite CHECK (isfinite(send_at) AND isfinite(expires_at)),
    CONSTRAINT ended_rows_and_only_they_have_finished_at
        CHECK ((status > 'QUEUED') = (finished_at IS NOT NULL)),
    CONSTRAINT failed_rows_have_an_error CHECK (failed_at IS NULL OR error IS NOT NULL)
) WITH (fillfactor = 85);

CREATE INDEX notification_log_due ON outboxd.notification_log (due_at) INCLUDE (topic) WHERE due_at IS NOT NULL;
CREATE INDEX notification_log_failed ON outboxd.notification_log (failed_at) INCLUDE (topic) WHERE failed_at IS NOT NULL;
CREATE UNIQUE INDEX notification_log_dedup ON outboxd.notification_log (topic, dedup_key) WHERE dedup_key IS NOT NULL;
