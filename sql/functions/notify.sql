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
CREATE OR REPLACE FUNCTION outboxd.notify(
    topic text, recipient text, payload jsonb, send_at timestamptz DEFAULT now(), dedup_key text DEFAULT NULL,
    ordering_key text DEFAULT NULL, expires_at timestamptz DEFAULT NULL, headers jsonb DEFAULT NULL
) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    limits record;
    new_id bigint;
    due    boolean := notify.send_at <= now();
BEGIN
    SELECT s.payload_bytes_max, s.send_ahead_max,
           coalesce((SELECT t.lane FROM outboxd.topic t WHERE t.name = notify.topic), 0) AS lane
      INTO limits FROM outboxd.setting s;
    IF (length(notify.topic) BETWEEN 1 AND 200 AND length(notify.recipient) BETWEEN 1 AND 4096 AND due
        AND pg_column_size(notify.payload) <= limits.payload_bytes_max AND isfinite(notify.send_at)
        AND notify.dedup_key IS NULL AND notify.ordering_key IS NULL AND notify.expires_at IS NULL
        AND notify.headers IS NULL) IS NOT TRUE THEN
        PERFORM outboxd._reject('notify', notify.topic, notify.recipient, notify.payload, notify.send_at,
            notify.dedup_key, notify.ordering_key, notify.expires_at, notify.headers,
            limits.payload_bytes_max, limits.send_ahead_max);
    END IF;

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
        VALUES (new_id, limits.lane, notify.ordering_key, CASE WHEN notify.ordering_key IS NULL THEN 0 ELSE 3 END);
    END IF;
    RETURN new_id;
END $$;

COMMENT ON FUNCTION outboxd.notify IS
    'Enqueue one notification in the current transaction; returns its id. The same (topic, dedup_key) again returns the first id and enqueues nothing.';
