-- The record: one row per notification, kept for its retention.
--
-- fillfactor 85 leaves room for the one HOT update of a normal life, QUEUED → SENT. No index may name
-- `status` or `finished_at`: it would make every outcome a non-HOT update. The generated columns `due_at`
-- and `failed_at` are NULL before and after that update, so their partial indexes do not stand in its way.
--
-- Postgres parses every CHECK anew for every statement, so their wording is terse: short constants, no lists.
-- notify() says more, and in words.

CREATE TYPE outboxd.status AS ENUM ('PENDING', 'QUEUED', 'SENT', 'FAILED', 'CANCELED');

-- One CHECK that calls a function, not eight: Postgres parses the stored text of every CHECK with every INSERT and
-- UPDATE (measured: 4 µs each), and calls a function for 2. The function raises under the name of the rule broken.
-- Rows of the usual kind pass at the first look: the rules themselves are set up anew in every transaction that asks.
-- Functions and operators are written with their schema: notify() runs this under the caller's search_path.
-- Bytes where an index must hold the value: 200 + 512 fit a B-tree page in any script.
CREATE FUNCTION outboxd._check_notification(
    topic text, recipient text, dedup_key text, ordering_key text, headers jsonb, send_at timestamptz,
    expires_at timestamptz, status outboxd.status, finished_at timestamptz, error text
) RETURNS boolean LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    rule pg_catalog.text;
BEGIN
    IF status OPERATOR(pg_catalog.=) 'QUEUED' AND finished_at IS NULL AND dedup_key IS NULL AND ordering_key IS NULL
       AND headers IS NULL AND expires_at IS NULL AND pg_catalog.isfinite(send_at)
       AND topic OPERATOR(pg_catalog.<>) '' AND pg_catalog.octet_length(topic) OPERATOR(pg_catalog.<=) 200
       AND recipient OPERATOR(pg_catalog.<>) '' AND pg_catalog.length(recipient) OPERATOR(pg_catalog.<=) 4096 THEN
        RETURN true;
    END IF;
    rule := CASE
        WHEN topic OPERATOR(pg_catalog.=) '' OR pg_catalog.octet_length(topic) OPERATOR(pg_catalog.>) 200
            THEN 'topic_has_1_to_200_bytes'
        WHEN recipient OPERATOR(pg_catalog.=) '' OR pg_catalog.length(recipient) OPERATOR(pg_catalog.>) 4096
            THEN 'recipient_has_1_to_4096_characters'
        WHEN dedup_key OPERATOR(pg_catalog.=) '' OR pg_catalog.octet_length(dedup_key) OPERATOR(pg_catalog.>) 512
            THEN 'dedup_key_has_1_to_512_bytes'
        WHEN ordering_key OPERATOR(pg_catalog.=) '' OR pg_catalog.octet_length(ordering_key) OPERATOR(pg_catalog.>) 512
            THEN 'ordering_key_has_1_to_512_bytes'
        WHEN pg_catalog.jsonb_typeof(headers) OPERATOR(pg_catalog.<>) 'object' THEN 'headers_are_an_object'
        WHEN NOT pg_catalog.isfinite(send_at) OR NOT pg_catalog.isfinite(expires_at) THEN 'times_are_finite'
        WHEN (status OPERATOR(pg_catalog.>) 'QUEUED') OPERATOR(pg_catalog.<>) (finished_at IS NOT NULL)
            THEN 'ended_rows_and_only_they_have_finished_at'
        WHEN status OPERATOR(pg_catalog.=) 'FAILED' AND error IS NULL THEN 'failed_rows_have_an_error'
    END;
    IF rule IS NULL THEN
        RETURN true;
    END IF;
    RAISE EXCEPTION 'new row for relation "notification_log" violates check constraint "%"', rule
        USING ERRCODE = 'check_violation', SCHEMA = 'outboxd', TABLE = 'notification_log', CONSTRAINT = rule;
END $$;

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

    CONSTRAINT notification_is_legal CHECK (outboxd._check_notification(
        topic, recipient, dedup_key, ordering_key, headers, send_at, expires_at, status, finished_at, error))
) WITH (fillfactor = 85);

-- By topic, so that a campaign of a million rows does not stand in front of another topic's single row.
CREATE INDEX notification_log_due ON outboxd.notification_log (topic, due_at, id) WHERE due_at IS NOT NULL;
CREATE INDEX notification_log_failed ON outboxd.notification_log (failed_at) INCLUDE (topic) WHERE failed_at IS NOT NULL;
CREATE UNIQUE INDEX notification_log_dedup ON outboxd.notification_log (topic, dedup_key) WHERE dedup_key IS NOT NULL;
