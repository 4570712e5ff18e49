-- A notification draws one number instead of two: its id is also its turn. Only what gets a turn later than its id, because it was
-- PENDING or an operator retries it, draws another, from the same sequence. A number costs the app's transaction as much as an
-- index. ARCHITECTURE.md has the figures.
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

-- What is queued was counted by outbox.seq; from now on by the rows that Postgres says it has inserted. The minutes so far are
-- shifted to where that count stands.
WITH ahead AS MATERIALIZED (
    SELECT s.last_value - pg_stat_get_tuples_inserted('outboxd.outbox'::regclass) AS rows FROM outboxd.outbox_seq_seq s
)
UPDATE outboxd.rollup_minute m
   SET seq_first = m.seq_first - (SELECT a.rows FROM ahead a), seq_last = m.seq_last - (SELECT a.rows FROM ahead a);

-- Turns go on above those there are. Ids are drawn meanwhile, by plain INSERTs: hence the margin.
SELECT CASE WHEN t.last_value > i.last_value THEN setval('outboxd.notification_log_id_seq', t.last_value + 1000) END
  FROM outboxd.outbox_seq_seq t, outboxd.notification_log_id_seq i;
ALTER TABLE outboxd.outbox ALTER seq DROP IDENTITY;
ALTER TABLE outboxd.outbox ALTER seq SET DEFAULT nextval('outboxd.notification_log_id_seq'::regclass);

-- Instances of before that still run ask for it, as the highest number, of which too low a one is safe, and as the count.
CREATE SEQUENCE outboxd.outbox_seq_seq;
SELECT setval('outboxd.outbox_seq_seq', greatest(1, pg_stat_get_tuples_inserted('outboxd.outbox'::regclass)));
