-- What POST /v1/notifications does in one transaction: writes the notifications and, under an Idempotency-Key,
-- remembers their ids. `items` is an array of objects with the names of notify()'s arguments; ids come in the order
-- given. outcome:
--   done        they are written
--   replayed    the same request was done before; ids are the first one's
--   other body  the key belongs to another request
--   under way   another transaction is at it
--
-- Interleavings: of two at once with one key, one has the key's lock and the other is told at once. Who gets the lock
-- after a commit reads in a new snapshot and finds the row. If the first rolls back, nothing was written and the key is
-- free. While a stranger holds that lock it does not count, and of two at once the second waits for the first on
-- idempotency_pkey: committed, all of the second is undone, and its caller is told to ask again.
-- Locks: an advisory lock of the key, until the end of the transaction; those of notify() and notify_many().
-- Index: idempotency_pkey.
CREATE OR REPLACE FUNCTION outboxd._post(token text, key text, digest bytea, items jsonb)
    RETURNS TABLE (outcome text, ids bigint[])
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    same boolean;
    lock bigint := hashtextextended(concat('outboxd ', token, ' ', key), 0);
BEGIN
    IF key IS NOT NULL THEN
        IF NOT pg_try_advisory_xact_lock(lock) AND outboxd._is_held_by_us(lock) THEN
            outcome := 'under way';
            RETURN NEXT;
            RETURN;
        END IF;
        SELECT i.digest = _post.digest, i.ids INTO same, ids FROM outboxd.idempotency i WHERE i.token = _post.token AND i.key = _post.key;
        IF FOUND THEN
            outcome := CASE WHEN same THEN 'replayed' ELSE 'other body' END;
            RETURN NEXT;
            RETURN;
        END IF;
    END IF;
    IF jsonb_array_length(items) = 1 THEN
        -- By far the most, and several times as fast.
        SELECT ARRAY[outboxd.notify(r.topic, r.recipient, r.payload, r.send_at, r.dedup_key, r.ordering_key, r.expires_at, r.headers)]
          INTO ids FROM jsonb_to_record(items->0) r(topic text, recipient text, payload jsonb, send_at timestamptz, dedup_key text,
                                                    ordering_key text, expires_at timestamptz, headers jsonb);
    ELSE
        ids := outboxd._post_many(items);
    END IF;
    IF key IS NOT NULL THEN
        INSERT INTO outboxd.idempotency (token, key, digest, ids) VALUES (token, key, digest, ids) ON CONFLICT DO NOTHING;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'another request under this Idempotency-Key was done meanwhile; ask again for its answer'
                USING ERRCODE = 'object_not_in_prerequisite_state';
        END IF;
    END IF;
    outcome := 'done';
    RETURN NEXT;
END $$;
