-- notify() for an array of objects, set-based: ids in the order given.
--
-- Ids are drawn before the insert, so each item knows its own; an item whose dedup_key is taken (by an earlier
-- row, by another item, or in a race) gets the first one's id. Keys are inserted in one order everywhere, so two
-- calls with the same keys wait for each other instead of dead-locking.
CREATE OR REPLACE FUNCTION outboxd.notify_many(topic text, items jsonb) RETURNS SETOF bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    moment  timestamptz := clock_timestamp();
    item    record;
    ids     bigint[];
    first   boolean := true;
    in_lane integer;
BEGIN
    PERFORM outboxd._reject_items(notify_many.topic, notify_many.items);
    -- The plain ones pass here (1 KiB of payload is below any limit); whatever looks unusual is looked at closely.
    FOR item IN SELECT * FROM outboxd._items(notify_many.items) i
        WHERE (octet_length(notify_many.topic) BETWEEN 1 AND 200 AND length(i.recipient) BETWEEN 1 AND 4096
               AND octet_length(i.payload::text) <= 1024 AND i.send_at <= moment AND isfinite(i.send_at)
               AND i.dedup_key IS NULL AND i.ordering_key IS NULL AND i.expires_at IS NULL AND i.headers IS NULL) IS NOT TRUE
        ORDER BY i.n
    LOOP
        PERFORM outboxd._reject('notify_many: item ' || item.n, notify_many.topic, item.recipient, item.payload,
            item.send_at, item.dedup_key, item.ordering_key, item.expires_at, item.headers);
    END LOOP;

    in_lane := coalesce((SELECT t.lane FROM outboxd.topic t WHERE t.name = notify_many.topic), 0);
    SELECT array_agg(nextval('outboxd.notification_log_id_seq') ORDER BY i.n) INTO ids
      FROM outboxd._items(notify_many.items) i;
    LOOP
        WITH added AS (
            INSERT INTO outboxd.notification_log
                   (id, created_at, topic, recipient, payload, send_at, dedup_key, ordering_key, expires_at, headers, status)
            OVERRIDING SYSTEM VALUE
            SELECT ids[i.n], clock_timestamp(), notify_many.topic, i.recipient, i.payload, i.send_at, i.dedup_key, i.ordering_key,
                   i.expires_at, i.headers, CASE WHEN i.send_at <= moment THEN 'QUEUED' ELSE 'PENDING' END::outboxd.status
              FROM outboxd._items(notify_many.items) i
             WHERE first OR (i.dedup_key IS NOT NULL AND NOT EXISTS (
                   SELECT FROM outboxd.notification_log l WHERE l.topic = notify_many.topic AND l.dedup_key = i.dedup_key))
             ORDER BY i.dedup_key NULLS FIRST, i.n
            -- Only this index: a clash of ids must be an error, not a lost row.
            ON CONFLICT (topic, dedup_key) WHERE dedup_key IS NOT NULL DO NOTHING
            RETURNING id, ordering_key, status)
        INSERT INTO outboxd.outbox (id, seq, lane, ordering_key, state)
        SELECT a.id, a.id, in_lane, a.ordering_key, CASE WHEN a.ordering_key IS NULL THEN 0 ELSE 3 END
          FROM added a WHERE a.status = 'QUEUED' ORDER BY a.id;

        -- A new statement, a new snapshot: what a racing transaction committed is visible now.
        -- Nobody's row: retention removed it since the conflict; insert again.
        EXIT WHEN NOT EXISTS (
            SELECT FROM outboxd._items(notify_many.items) i
             WHERE i.dedup_key IS NOT NULL
               AND NOT EXISTS (SELECT FROM outboxd.notification_log l
                                WHERE l.topic = notify_many.topic AND l.dedup_key = i.dedup_key));
        first := false;
    END LOOP;

    PERFORM outboxd._ring();
    RETURN QUERY
    SELECT CASE WHEN i.dedup_key IS NULL THEN ids[i.n]
                ELSE (SELECT l.id FROM outboxd.notification_log l
                       WHERE l.topic = notify_many.topic AND l.dedup_key = i.dedup_key) END
      FROM outboxd._items(notify_many.items) i ORDER BY i.n;
END $$;

COMMENT ON FUNCTION outboxd.notify_many IS
    'notify() for a JSON array of objects with the field names of notify(); returns the ids in the order given.';
