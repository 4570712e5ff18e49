-- Makes the head of each key live if no row of the key is. Lock first, then look: each statement of this
-- function has its own snapshot (READ COMMITTED), so whoever holds the lock sees what the last holder did.
-- The head becomes due at once (retry_at); the relay's timer publishes it. Keys are locked in the
-- order of what is locked, their hash.
CREATE OR REPLACE FUNCTION outboxd._admit(keys text[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    k text;
BEGIN
    FOR k IN SELECT u FROM unnest(keys) u WHERE u IS NOT NULL GROUP BY u ORDER BY hashtext(u), u LOOP
        PERFORM pg_advisory_xact_lock(7071, hashtext(k));
        UPDATE outboxd.outbox SET state = 0, live_key = k, retry_at = clock_timestamp()
         WHERE id = (SELECT o.id FROM outboxd.outbox o WHERE o.ordering_key = k ORDER BY o.seq LIMIT 1)
           AND state = 3
           AND NOT EXISTS (SELECT FROM outboxd.outbox o WHERE o.live_key = k);
    END LOOP;
END $$;
