-- Enqueues one notification in the caller's transaction and returns its id: its record in notification_log and, if it
-- is due, its live work in outbox. The rules are CHECKs of the table; what this adds is the hint (_reject).
--
-- It runs inside the app's transactions as the schema's owner. Setting a search_path would cost a tenth of the call, so
-- the body names nothing that a caller's search_path can change: no bare operator, no bare type, no `CASE x WHEN`,
-- `IN`, `BETWEEN`, `IS DISTINCT FROM`. The record's created_at rings the bell: see V0001.
--
-- Interleavings it survives, with a dedup_key:
--   two at once          the second waits for the first's transaction on the unique index, then finds its row
--                        (a second statement: the first one's snapshot cannot see it) or, if the first rolled
--                        back, inserts its own;
--   retention in between the row found by the conflict is gone when looked up: the loop inserts again;
--   REPEATABLE READ and SERIALIZABLE: the row may be invisible to the snapshot; Postgres answers 40001 and the
--                        app's usual retry of the transaction finds it.
-- Other keys never wait: only equal (topic, dedup_key) meet in the index.
CREATE OR REPLACE FUNCTION outboxd.notify(
    topic text, recipient text, payload jsonb, send_at timestamptz DEFAULT NULL, dedup_key text DEFAULT NULL,
    ordering_key text DEFAULT NULL, expires_at timestamptz DEFAULT NULL, headers jsonb DEFAULT NULL
) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER AS $$
#variable_conflict use_column
DECLARE
    is_due boolean := notify.send_at IS NULL OR pg_catalog.timestamptz_le(notify.send_at, pg_catalog.clock_timestamp());
    new_id bigint;
BEGIN
    -- Bounds that rows of the usual kind pass, and nothing that is NULL; whoever does not is checked in full.
    -- Each transaction compiles them anew: few calls.
    IF (notify.send_at IS NULL AND notify.dedup_key IS NULL AND notify.ordering_key IS NULL AND notify.expires_at IS NULL
        AND notify.headers IS NULL
        AND pg_catalog.range_contains_elem('[1,200]'::pg_catalog.int4range, pg_catalog.octet_length(notify.topic))
        AND pg_catalog.range_contains_elem('[1,2048]'::pg_catalog.int4range, pg_catalog.octet_length(notify.recipient))
        AND pg_catalog.int4lt(pg_catalog.pg_column_size(notify.payload), 8000)) IS NOT TRUE THEN
        PERFORM outboxd._reject('notify', notify.topic, notify.recipient, notify.payload, notify.send_at,
            notify.dedup_key, notify.ordering_key, notify.expires_at, notify.headers);
    END IF;
    IF notify.dedup_key IS NULL THEN
        INSERT INTO outboxd.notification_log (topic, recipient, payload, send_at, ordering_key, expires_at, headers, status)
        VALUES (notify.topic, notify.recipient, notify.payload, COALESCE(notify.send_at, pg_catalog.clock_timestamp()),
                notify.ordering_key, notify.expires_at, notify.headers,
                CASE WHEN is_due THEN 'QUEUED'::outboxd.notification_status ELSE 'PENDING'::outboxd.notification_status END)
        RETURNING id INTO new_id;
    ELSE
        LOOP
            INSERT INTO outboxd.notification_log
                   (topic, recipient, payload, send_at, dedup_key, ordering_key, expires_at, headers, status)
            VALUES (notify.topic, notify.recipient, notify.payload, COALESCE(notify.send_at, pg_catalog.clock_timestamp()),
                    notify.dedup_key, notify.ordering_key, notify.expires_at, notify.headers,
                    CASE WHEN is_due THEN 'QUEUED'::outboxd.notification_status ELSE 'PENDING'::outboxd.notification_status END)
            ON CONFLICT (topic, dedup_key) WHERE dedup_key IS NOT NULL DO NOTHING
            RETURNING id INTO new_id;
            EXIT WHEN new_id IS NOT NULL;
            SELECT l.id INTO new_id FROM outboxd.notification_log l
             WHERE l.topic OPERATOR(pg_catalog.=) notify.topic AND l.dedup_key OPERATOR(pg_catalog.=) notify.dedup_key;
            IF new_id IS NOT NULL THEN
                RETURN new_id;
            END IF;
        END LOOP;
    END IF;
    IF is_due THEN
        INSERT INTO outboxd.outbox (id, topic, ordering_key, state)
        VALUES (new_id, notify.topic, notify.ordering_key,
                CASE WHEN notify.ordering_key IS NULL THEN 'ready'::outboxd.state ELSE 'blocked'::outboxd.state END);
    END IF;
    RETURN new_id;
END $$;

-- The payload as json or as text. Both are bound when they are created and vanish into the call when it is planned: a
-- prepared statement pays nothing, any other a tenth of its call. An untyped literal or parameter means text.
CREATE OR REPLACE FUNCTION outboxd.notify(
    topic text, recipient text, payload json, send_at timestamptz DEFAULT NULL, dedup_key text DEFAULT NULL,
    ordering_key text DEFAULT NULL, expires_at timestamptz DEFAULT NULL, headers jsonb DEFAULT NULL
) RETURNS bigint LANGUAGE sql
BEGIN ATOMIC
    SELECT outboxd.notify(topic, recipient, payload::jsonb, send_at, dedup_key, ordering_key, expires_at, headers);
END;
CREATE OR REPLACE FUNCTION outboxd.notify(
    topic text, recipient text, payload text, send_at timestamptz DEFAULT NULL, dedup_key text DEFAULT NULL,
    ordering_key text DEFAULT NULL, expires_at timestamptz DEFAULT NULL, headers jsonb DEFAULT NULL
) RETURNS bigint LANGUAGE sql
BEGIN ATOMIC
    SELECT outboxd.notify(topic, recipient, payload::jsonb, send_at, dedup_key, ordering_key, expires_at, headers);
END;

COMMENT ON FUNCTION outboxd.notify(text, text, jsonb, timestamptz, text, text, timestamptz, jsonb) IS
    'Enqueue one notification in the current transaction; returns its id. The same (topic, dedup_key) again returns the first id and enqueues nothing.';
COMMENT ON FUNCTION outboxd.notify(text, text, json, timestamptz, text, text, timestamptz, jsonb) IS
    'notify() with the payload as json.';
COMMENT ON FUNCTION outboxd.notify(text, text, text, timestamptz, text, text, timestamptz, jsonb) IS
    'notify() with the payload as text.';
