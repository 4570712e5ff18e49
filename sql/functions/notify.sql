-- Enqueues one notification in the caller's transaction and returns its id.
--
-- This runs inside the app's transactions, so it is written for speed (ARCHITECTURE.md has the figures): the usual call
-- (due now, a small payload, no key) is one statement, no look at the settings for what no setting may forbid, no
-- ON CONFLICT (a speculative insert and more WAL). Whatever else is asked goes to _notify().
--
-- A search_path set for the call would cost more than the statement, and would have to be set for its trigger too. So
-- here, in the trigger and in the tables' rules every function and operator is written with its schema: whoever calls
-- may have any search_path and changes nothing.
CREATE OR REPLACE FUNCTION outboxd.notify(
    topic text, recipient text, payload jsonb, send_at timestamptz DEFAULT now(), dedup_key text DEFAULT NULL,
    ordering_key text DEFAULT NULL, expires_at timestamptz DEFAULT NULL, headers jsonb DEFAULT NULL
) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER AS $$
#variable_conflict use_column
DECLARE
    new_id bigint;
BEGIN
    IF notify.dedup_key IS NULL AND notify.ordering_key IS NULL AND notify.expires_at IS NULL AND notify.headers IS NULL
       AND pg_catalog.octet_length(notify.topic) OPERATOR(pg_catalog.<=) 200 AND notify.topic OPERATOR(pg_catalog.<>) ''
       AND pg_catalog.length(notify.recipient) OPERATOR(pg_catalog.<=) 4096 AND notify.recipient OPERATOR(pg_catalog.<>) ''
       AND pg_catalog.octet_length(notify.payload::pg_catalog.text) OPERATOR(pg_catalog.<=) 1024
       AND notify.send_at OPERATOR(pg_catalog.<=) pg_catalog.clock_timestamp() AND pg_catalog.isfinite(notify.send_at)
    THEN
        WITH added AS (
            INSERT INTO outboxd.notification_log (topic, recipient, payload, send_at, status)
            VALUES (notify.topic, notify.recipient, notify.payload, notify.send_at, 'QUEUED') RETURNING id)
        INSERT INTO outboxd.outbox (id, lane)
        SELECT a.id, coalesce((SELECT t.lane FROM outboxd.topic t WHERE t.name OPERATOR(pg_catalog.=) notify.topic), 0)
          FROM added a
        RETURNING id INTO new_id;
        RETURN new_id;
    END IF;
    RETURN outboxd._notify(notify.topic, notify.recipient, notify.payload, notify.send_at, notify.dedup_key,
        notify.ordering_key, notify.expires_at, notify.headers);
END $$;

COMMENT ON FUNCTION outboxd.notify IS
    'Enqueue one notification in the current transaction; returns its id. The same (topic, dedup_key) again returns the first id and enqueues nothing.';
