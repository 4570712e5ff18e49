-- When a row was published has a column of its own. It stood in `next_at`, which the claim overwrites with the end of the lease, so
-- the claim had to find every row twice: once for what it is about to overwrite, once to claim it. ARCHITECTURE.md has the figures.
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
            ALTER TABLE outboxd.outbox ADD COLUMN published_at timestamptz;
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
