-- Two of the five indexes that every notify() opened, locked and asked, although its row is in none of them, go: what waits for a
-- time is listed in a table of its own, and what waits behind a key and what has its turn are in one index. ARCHITECTURE.md
-- has the figures.
--
-- The outbox is read once, for the new index: about 0.15 s for a million rows, in which writes wait. The lock is taken only when
-- it is free: one that would have to wait is given up after 100 ms, so that no write of the app waits behind ours for longer.
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

-- When which row is due. It says where to look, no more: a timer counts if the row's `retry_at` is its `at`, else the row has moved on
-- and whoever finds the timer run out deletes it.
CREATE TABLE outboxd.timer (
    at timestamptz NOT NULL,
    id bigint      NOT NULL,
    CONSTRAINT timer_pkey PRIMARY KEY (at, id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0,
        autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 5000);
DROP INDEX outboxd.outbox_retry;

-- The line before each key: who has its turn stands at 0, the others at their number. Turns begin at 1.
CREATE UNIQUE INDEX outbox_line ON outboxd.outbox (ordering_key, (CASE WHEN live_key IS NULL THEN seq ELSE 0 END))
    WHERE ordering_key IS NOT NULL;
DROP INDEX outboxd.outbox_key;
DROP INDEX outboxd.a_key_has_at_most_one_live_row;
ALTER INDEX outboxd.outbox_line RENAME TO a_key_has_at_most_one_live_row;
