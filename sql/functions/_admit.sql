-- Makes the head of each key live if no row of the key is. Lock first, then look: each statement of this
-- function has its own snapshot (READ COMMITTED), so whoever holds the lock sees what the last holder did.
-- The head becomes due at once (retry_at and its timer), and the relay publishes it. Who has its turn stands first in the line. Keys are locked in the
-- order of what is locked, their hash.
CREATE OR REPLACE FUNCTION outboxd._admit(keys text[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    k text;
BEGIN
    FOR k IN SELECT u FROM unnest(keys) u WHERE u IS NOT NULL GROUP BY u ORDER BY hashtext(u), u LOOP
        PERFORM pg_advisory_xact_lock(7071, hashtext(k));
        WITH admitted AS (
            UPDATE outboxd.outbox SET state = 0, live_key = k, retry_at = clock_timestamp()
             WHERE id = (SELECT o.id FROM outboxd.outbox o WHERE o.ordering_key = k
                          ORDER BY o.ordering_key, CASE WHEN o.live_key IS NULL THEN o.seq ELSE 0 END LIMIT 1)
               AND state = 3
            RETURNING id, retry_at
        )
        INSERT INTO outboxd.timer (at, id) SELECT a.retry_at, a.id FROM admitted a;
    END LOOP;
END $$;
