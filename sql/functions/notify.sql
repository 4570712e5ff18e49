-- Enqueues one notification in the caller's transaction and returns its id.
--
-- Interleavings it survives, with a dedup_key:
--   two at once          the second waits for the first's transaction on the unique index, then finds its row
--                        (a second statement: the first one's snapshot cannot see it) or, if the first rolled
--                        back, inserts its own;
--   retention in between the row found by the conflict is gone when looked up: the loop inserts again;
--   REPEATABLE READ and SERIALIZABLE: the row may be invisible to the snapshot; Postgres answers 40001 and the
--                        app's usual retry of the transaction finds it.
-- Other keys never wait: only equal (topic, dedup_key) meet in the index.
--
-- This runs inside the app's transactions, so it is written for speed: one statement for the usual call, no look
-- at the settings for what no setting may forbid, no ON CONFLICT (a speculative insert and more WAL) without a
-- key. ARCHITECTURE.md has the figures.
CREATE OR REPLACE FUNCTION outboxd.notify(
    topic text, recipient text, payload jsonb, send_at timestamptz DEFAULT now(), dedup_key text DEFAULT NULL,
    ordering_key text DEFAULT NULL, expires_at timestamptz DEFAULT NULL, headers jsonb DEFAULT NULL
) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    new_id bigint;
    due    boolean;
BEGIN
    IF octet_length(notify.topic) BETWEEN 1 AND 200 AND length(notify.recipient) BETWEEN 1 AND 4096
       AND octet_length(notify.payload::text) <= 1024 AND notify.send_at <= clock_timestamp() AND isfinite(notify.send_at)
       AND notify.dedup_key IS NULL AND notify.ordering_key IS NULL AND notify.expires_at IS NULL AND notify.headers IS NULL
    THEN
        WITH added AS (
            INSERT INTO outboxd.notification_log (topic, recipient, payload, send_at, status)
            VALUES (notify.topic, notify.recipient, notify.payload, notify.send_at, 'QUEUED') RETURNING id)
        INSERT INTO outboxd.outbox (id, lane)
        SELECT a.id, coalesce((SELECT t.lane FROM outboxd.topic t WHERE t.name = notify.topic), 0) FROM added a
        RETURNING id INTO new_id;
        RETURN new_id;
    END IF;

    PERFORM outboxd._reject('notify', notify.topic, notify.recipient, notify.payload, notify.send_at,
        notify.dedup_key, notify.ordering_key, notify.expires_at, notify.headers);
    due := notify.send_at <= clock_timestamp();
    LOOP
        INSERT INTO outboxd.notification_log
               (topic, recipient, payload, send_at, dedup_key, ordering_key, expires_at, headers, status)
        VALUES (notify.topic, notify.recipient, notify.payload, notify.send_at, notify.dedup_key,
                notify.ordering_key, notify.expires_at, notify.headers,
                CASE WHEN due THEN 'QUEUED' ELSE 'PENDING' END::outboxd.status)
        ON CONFLICT (topic, dedup_key) WHERE dedup_key IS NOT NULL DO NOTHING
        RETURNING id INTO new_id;
        EXIT WHEN new_id IS NOT NULL;
        SELECT l.id INTO new_id FROM outboxd.notification_log l
         WHERE l.topic = notify.topic AND l.dedup_key = notify.dedup_key;
        IF new_id IS NOT NULL THEN
            RETURN new_id;
        END IF;
    END LOOP;

    IF due THEN
        INSERT INTO outboxd.outbox (id, lane, ordering_key, state)
        VALUES (new_id, coalesce((SELECT t.lane FROM outboxd.topic t WHERE t.name = notify.topic), 0),
                notify.ordering_key, CASE WHEN notify.ordering_key IS NULL THEN 0 ELSE 3 END);
    END IF;
    RETURN new_id;
END $$;

COMMENT ON FUNCTION outboxd.notify IS
    'Enqueue one notification in the current transaction; returns its id. The same (topic, dedup_key) again returns the first id and enqueues nothing.';
