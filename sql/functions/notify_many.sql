-- notify() for an array of objects, set-based: ids in the order given.
--
-- Ids are drawn before the insert, so each item knows its own; an item whose dedup_key is taken (by an earlier
-- row, by another item, or in a race) gets the first one's id. Keys are inserted in one order everywhere, so two
-- calls with the same keys wait for each other instead of dead-locking.
CREATE OR REPLACE FUNCTION outboxd.notify_many(topic text, items jsonb) RETURNS SETOF bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    limits  record;
    item    record;
    unknown text;
    ids     bigint[];
BEGIN
    IF notify_many.topic IS NULL OR notify_many.items IS NULL THEN
        RAISE EXCEPTION 'notify_many: % must not be NULL', CASE WHEN notify_many.topic IS NULL THEN 'topic' ELSE 'items' END
            USING ERRCODE = 'null_value_not_allowed', HINT = 'Pass a topic and a JSON array of objects.';
    END IF;
    IF jsonb_typeof(notify_many.items) <> 'array' THEN
        RAISE EXCEPTION 'notify_many: items is a JSON %, not an array', jsonb_typeof(notify_many.items)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Pass [{"recipient": "…", "payload": {…}}, …].';
    END IF;
    SELECT s.payload_bytes_max, s.send_ahead_max,
           coalesce((SELECT t.lane FROM outboxd.topic t WHERE t.name = notify_many.topic), 0) AS lane
      INTO limits FROM outboxd.setting s;

    SELECT format('item %s has no field %s', i.n, quote_ident(f.key)) INTO unknown
      FROM jsonb_array_elements(notify_many.items) WITH ORDINALITY i(value, n)
      CROSS JOIN LATERAL jsonb_object_keys(CASE jsonb_typeof(i.value) WHEN 'object' THEN i.value ELSE '{"": 1}' END) f(key)
     WHERE f.key NOT IN ('recipient', 'payload', 'send_at', 'dedup_key', 'ordering_key', 'expires_at', 'headers')
     ORDER BY i.n LIMIT 1;
    IF unknown IS NOT NULL THEN
        RAISE EXCEPTION 'notify_many: %', unknown USING ERRCODE = 'invalid_parameter_value',
            HINT = 'An item is an object with recipient, payload and, where wanted, send_at, dedup_key, ordering_key, expires_at, headers.';
    END IF;
    -- The plain ones pass here; whatever looks unusual is looked at closely.
    FOR item IN SELECT * FROM outboxd._items(notify_many.items) i
        WHERE (length(notify_many.topic) BETWEEN 1 AND 200 AND length(i.recipient) BETWEEN 1 AND 4096
               AND pg_column_size(i.payload) <= limits.payload_bytes_max AND i.send_at <= now() AND isfinite(i.send_at)
               AND i.dedup_key IS NULL AND i.ordering_key IS NULL AND i.expires_at IS NULL AND i.headers IS NULL) IS NOT TRUE
        ORDER BY i.n
    LOOP
        PERFORM outboxd._reject('notify_many: item ' || item.n, notify_many.topic, item.recipient, item.payload,
            item.send_at, item.dedup_key, item.ordering_key, item.expires_at, item.headers,
            limits.payload_bytes_max, limits.send_ahead_max);
    END LOOP;

    SELECT array_agg(nextval('outboxd.notification_log_id_seq') ORDER BY i.n) INTO ids
      FROM outboxd._items(notify_many.items) i;
    LOOP
        WITH added AS (
            INSERT INTO outboxd.notification_log
                   (id, topic, recipient, payload, send_at, dedup_key, ordering_key, expires_at, headers, status)
            OVERRIDING SYSTEM VALUE
            SELECT ids[i.n], notify_many.topic, i.recipient, i.payload, i.send_at, i.dedup_key, i.ordering_key,
                   i.expires_at, i.headers, CASE WHEN i.send_at <= now() THEN 'QUEUED' ELSE 'PENDING' END::outboxd.status
              FROM outboxd._items(notify_many.items) i
             ORDER BY i.dedup_key NULLS FIRST, i.n
            ON CONFLICT DO NOTHING
            RETURNING id, ordering_key, status)
        INSERT INTO outboxd.outbox (id, lane, ordering_key, state)
        SELECT a.id, limits.lane, a.ordering_key, CASE WHEN a.ordering_key IS NULL THEN 0 ELSE 3 END
          FROM added a WHERE a.status = 'QUEUED' ORDER BY a.id;

        -- A new statement, a new snapshot: what a racing transaction committed is visible now.
        -- Nobody's row: the other one rolled back or retention removed it; insert again.
        EXIT WHEN NOT EXISTS (
            SELECT FROM outboxd._items(notify_many.items) i
             WHERE i.dedup_key IS NOT NULL
               AND NOT EXISTS (SELECT FROM outboxd.notification_log l
                                WHERE l.topic = notify_many.topic AND l.dedup_key = i.dedup_key));
    END LOOP;

    RETURN QUERY
    SELECT CASE WHEN i.dedup_key IS NULL THEN ids[i.n]
                ELSE (SELECT l.id FROM outboxd.notification_log l
                       WHERE l.topic = notify_many.topic AND l.dedup_key = i.dedup_key) END
      FROM outboxd._items(notify_many.items) i ORDER BY i.n;
END $$;

COMMENT ON FUNCTION outboxd.notify_many IS
    'notify() for a JSON array of objects with the field names of notify(); returns the ids in the order given.';
