-- notify() for whatever is not the usual call: looks at everything, says what is wrong, knows keys and later times.
-- What the log has to know from the beginning is written there, and its outbox row carries no letter.
--
-- Interleavings it survives, with a dedup_key:
--   two at once          the second waits for the first's transaction on the unique index, then finds its row
--                        (a second statement: the first one's snapshot cannot see it) or, if the first rolled
--                        back, inserts its own;
--   retention in between the row found by the conflict is gone when looked up: the loop inserts again;
--   REPEATABLE READ and SERIALIZABLE: the row may be invisible to the snapshot; Postgres answers 40001 and the
--                        app's usual retry of the transaction finds it.
-- Other keys never wait: only equal (topic, dedup_key) meet in the index.
CREATE OR REPLACE FUNCTION outboxd._notify(
    topic text, recipient text, payload jsonb, send_at timestamptz, dedup_key text,
    ordering_key text, expires_at timestamptz, headers jsonb
) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    new_id bigint;
    due    boolean := _notify.send_at <= clock_timestamp();
BEGIN
    -- 1 KiB of recipient and payload is below any limit of either.
    IF due AND isfinite(_notify.send_at) AND num_nonnulls(_notify.dedup_key, _notify.ordering_key, _notify.expires_at, _notify.headers) = 0
       AND octet_length(_notify.topic) BETWEEN 1 AND 200 AND _notify.recipient <> ''
       AND octet_length(_notify.recipient || _notify.payload::text) <= 1024
    THEN
        new_id := nextval('outboxd.notification_log_id_seq');
        INSERT INTO outboxd.outbox (id, seq, lane, topic, recipient, payload, send_at, created_at)
        VALUES (new_id, new_id, outboxd._lane(_notify.topic), _notify.topic, _notify.recipient, _notify.payload,
                _notify.send_at, outboxd._ring_at_insert());
        RETURN new_id;
    END IF;
    PERFORM outboxd._reject('notify', _notify.topic, _notify.recipient, _notify.payload, _notify.send_at,
        _notify.dedup_key, _notify.ordering_key, _notify.expires_at, _notify.headers);
    LOOP
        INSERT INTO outboxd.notification_log
               (topic, recipient, payload, send_at, dedup_key, ordering_key, expires_at, headers, status)
        VALUES (_notify.topic, _notify.recipient, _notify.payload, _notify.send_at, _notify.dedup_key,
                _notify.ordering_key, _notify.expires_at, _notify.headers,
                CASE WHEN due THEN 'QUEUED' ELSE 'PENDING' END::outboxd.status)
        ON CONFLICT (topic, dedup_key) WHERE dedup_key IS NOT NULL DO NOTHING
        RETURNING id INTO new_id;
        EXIT WHEN new_id IS NOT NULL;
        SELECT l.id INTO new_id FROM outboxd.notification_log l
         WHERE l.topic = _notify.topic AND l.dedup_key = _notify.dedup_key;
        IF new_id IS NOT NULL THEN
            RETURN new_id;
        END IF;
    END LOOP;

    IF due THEN
        INSERT INTO outboxd.outbox (id, seq, lane, ordering_key, state)
        VALUES (new_id, new_id, outboxd._lane(_notify.topic),
                _notify.ordering_key, CASE WHEN _notify.ordering_key IS NULL THEN 0 ELSE 3 END);
    END IF;
    RETURN new_id;
END $$;
