-- notify() for an array of objects, set-based: ids in the order given.
--
-- Ids are drawn before the insert, so each item knows its own; an item whose dedup_key is taken (by an earlier
-- row, by another item, or in a race) gets the first one's id. Release numbers are drawn in the order of the items.
-- Interleavings: keys are inserted in one order everywhere, so two calls with the same keys wait for each other instead
-- of dead-locking. Retention may remove a row between the conflict and the look-up: then its item is inserted after
-- all, out of that order, and two such calls at once may end in 40P01. REPEATABLE READ and SERIALIZABLE: a row that the
-- snapshot cannot see ends in 40001. The app's usual retry of the transaction serves both.
-- Locks: new rows only. Index: notification_log_dedup.
CREATE OR REPLACE FUNCTION outboxd.notify_many(topic text, items jsonb) RETURNS SETOF bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    began  timestamptz := clock_timestamp();
    ids    bigint[];
    -- The answer: as long as it is not known, each item is still to be inserted.
    known  bigint[];
    added  bigint;
BEGIN
    PERFORM outboxd._reject_items(notify_many.topic, notify_many.items);
    SELECT array_agg(nextval('outboxd.notification_log_id_seq')) INTO ids
      FROM generate_series(1, jsonb_array_length(notify_many.items));
    LOOP
        WITH logged AS (
            INSERT INTO outboxd.notification_log
                   (id, created_at, topic, recipient, payload, send_at, dedup_key, ordering_key, expires_at, headers, status)
            OVERRIDING SYSTEM VALUE
            SELECT ids[i.n], clock_timestamp(), notify_many.topic, i.recipient, i.payload, coalesce(i.send_at, began), i.dedup_key,
                   i.ordering_key, i.expires_at, i.headers,
                   CASE WHEN i.send_at > began THEN 'PENDING' ELSE 'QUEUED' END::outboxd.notification_status
              FROM outboxd._items(notify_many.items) i WHERE known[i.n] IS NULL
             ORDER BY i.dedup_key NULLS FIRST, i.n
            -- Only this index: a clash of ids must be an error, not a lost row.
            ON CONFLICT (topic, dedup_key) WHERE dedup_key IS NOT NULL DO NOTHING
            RETURNING id, ordering_key, status
        ), queued AS (
            INSERT INTO outboxd.outbox (id, topic, ordering_key, state)
            SELECT l.id, notify_many.topic, l.ordering_key,
                   CASE WHEN l.ordering_key IS NULL THEN 'ready' ELSE 'blocked' END::outboxd.state
              FROM logged l WHERE l.status = 'QUEUED' ORDER BY l.id
        )
        SELECT count(*) INTO added FROM logged;
        IF added = cardinality(ids) THEN
            known := ids;
        ELSE
            -- A new statement, a new snapshot: what a racing transaction committed is visible now.
            SELECT array_agg(CASE WHEN i.dedup_key IS NULL THEN ids[i.n] ELSE (
                       SELECT l.id FROM outboxd.notification_log l WHERE l.topic = notify_many.topic AND l.dedup_key = i.dedup_key) END
                   ORDER BY i.n) INTO known
              FROM outboxd._items(notify_many.items) i;
        END IF;
        EXIT WHEN array_position(known, NULL) IS NULL;
    END LOOP;
    -- The rows give their own created_at, so that the bell is read once.
    PERFORM outboxd._ring();
    RETURN QUERY SELECT unnest(known);
END $$;

COMMENT ON FUNCTION outboxd.notify_many IS
    'notify() for a JSON array of objects with the field names of notify(); returns the ids in the order given.';
