-- notify() writes one row instead of two. The usual notification travels in its outbox row, letter and all, and is filed in
-- notification_log when it ends, as one INSERT instead of the UPDATE of a row written before. Notifications that the log has to
-- know from the beginning (not yet due, with a dedup_key, an ordering_key, headers or an expiry, or big) are written there at once,
-- as before: their outbox rows carry no letter. `topic` tells which it is. ARCHITECTURE.md has the figures.
--
-- Nothing is scanned or rewritten. The table is locked for the catalog only, and only when it is free: a lock that would have
-- to wait is given up after 100 ms, so that no write of the app waits behind ours for longer.
DO $$
DECLARE
    tries integer := 0;
BEGIN
    LOOP
        BEGIN
            SET LOCAL lock_timeout = '100ms';
            LOCK TABLE outboxd.outbox IN ACCESS EXCLUSIVE MODE;
            EXIT;
        EXCEPTION WHEN lock_not_available THEN
            tries := tries + 1;
            IF tries >= 600 THEN
                RAISE EXCEPTION 'outboxd.outbox is in use by transactions that do not end'
                    USING ERRCODE = 'lock_not_available', HINT = 'See xact_start in pg_stat_activity; then migrate again.';
            END IF;
        END;
        PERFORM pg_sleep(0.1);
    END LOOP;
    RESET lock_timeout;
END $$;

-- The letter: all of it, or none.
ALTER TABLE outboxd.outbox
    ADD COLUMN created_at timestamptz,
    ADD COLUMN send_at    timestamptz,
    ADD COLUMN topic      text,
    ADD COLUMN recipient  text,
    ADD COLUMN payload    jsonb;

-- The log has a channel too, by name; this one is a position on the route. The new name also keeps instances that know
-- nothing of letters from claiming rows they would not find in the log: their claims fail, and nothing is lost.
ALTER TABLE outboxd.outbox RENAME COLUMN channel TO route_step;
