-- Less for Postgres to set up with every statement and to do for every row: beyond what a plain INSERT costs, notify() costs the
-- app a third less, and a delivery costs Postgres a fifth less. ARCHITECTURE.md has the figures.
--
-- Nothing is scanned or rewritten. The tables are locked for the catalog only, and only when they are free: a lock that
-- would have to wait is given up after 100 ms, so that no write of the app waits behind ours for longer.
DO $$
DECLARE
    tries integer := 0;
BEGIN
    LOOP
        BEGIN
            SET LOCAL lock_timeout = '100ms';
            LOCK TABLE outboxd.notification_log, outboxd.outbox IN ACCESS EXCLUSIVE MODE;
            EXIT;
        EXCEPTION WHEN lock_not_available THEN
            tries := tries + 1;
            IF tries >= 600 THEN
                RAISE EXCEPTION 'outboxd.notification_log is in use by transactions that do not end'
                    USING ERRCODE = 'lock_not_available', HINT = 'See xact_start in pg_stat_activity; then migrate again.';
            END IF;
        END;
        PERFORM pg_sleep(0.1);
    END LOOP;
    RESET lock_timeout;
END $$;

-- The rules of V0001 and V0002 are for what others write. Only a PENDING row is anybody else's: notify() looks at its
-- arguments itself, and whatever comes after is written by this schema's own statements, whose outcome the tests check.
-- A rule that calls a function costs 3 µs a row, four times in the life of a notification.
ALTER TABLE outboxd.notification_log DROP CONSTRAINT notification_is_legal;
ALTER TABLE outboxd.outbox DROP CONSTRAINT work_is_legal;
DROP FUNCTION outboxd._check_notification;
DROP FUNCTION outboxd._check_work;

-- Functions and operators are written with their schema: this runs under the search_path of whoever inserts.
CREATE FUNCTION outboxd._check_notification(
    topic text, recipient text, dedup_key text, ordering_key text, headers jsonb, send_at timestamptz, expires_at timestamptz
) RETURNS boolean LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    rule pg_catalog.text := CASE
        WHEN topic OPERATOR(pg_catalog.=) '' OR pg_catalog.octet_length(topic) OPERATOR(pg_catalog.>) 200
            THEN 'topic_has_1_to_200_bytes'
        WHEN recipient OPERATOR(pg_catalog.=) '' OR pg_catalog.length(recipient) OPERATOR(pg_catalog.>) 4096
            THEN 'recipient_has_1_to_4096_characters'
        WHEN dedup_key OPERATOR(pg_catalog.=) '' OR pg_catalog.octet_length(dedup_key) OPERATOR(pg_catalog.>) 512
            THEN 'dedup_key_has_1_to_512_bytes'
        WHEN ordering_key OPERATOR(pg_catalog.=) '' OR pg_catalog.octet_length(ordering_key) OPERATOR(pg_catalog.>) 512
            THEN 'ordering_key_has_1_to_512_bytes'
        WHEN pg_catalog.jsonb_typeof(headers) OPERATOR(pg_catalog.<>) 'object' THEN 'headers_are_an_object'
        WHEN NOT pg_catalog.isfinite(send_at) OR NOT pg_catalog.isfinite(expires_at) THEN 'times_are_finite'
    END;
BEGIN
    IF rule IS NULL THEN
        RETURN true;
    END IF;
    RAISE EXCEPTION 'new row for relation "notification_log" violates check constraint "%"', rule
        USING ERRCODE = 'check_violation', SCHEMA = 'outboxd', TABLE = 'notification_log', CONSTRAINT = rule;
END $$;

-- NOT VALID: the rows that are there passed the same rules.
ALTER TABLE outboxd.notification_log ADD CONSTRAINT notification_is_legal CHECK (
    status <> 'PENDING' OR outboxd._check_notification(topic, recipient, dedup_key, ordering_key, headers, send_at, expires_at)
) NOT VALID;

-- Postgres parses the expression of a generated column with every statement. Ours set this one themselves.
ALTER TABLE outboxd.notification_log ALTER failed_at DROP EXPRESSION;

-- A statement trigger rang the bell. A default does it for a tenth of that: it is an expression of the INSERT itself.
-- Whoever writes `created_at` does not ring.
CREATE FUNCTION outboxd._ring_at_insert() RETURNS timestamptz LANGUAGE sql AS $$ SELECT pg_catalog.clock_timestamp() $$;
-- A schema made anew has had no functions until now.
SET LOCAL client_min_messages = warning;
DROP TRIGGER IF EXISTS ring ON outboxd.notification_log;
DROP FUNCTION IF EXISTS outboxd._ring_after_insert;
RESET client_min_messages;
ALTER TABLE outboxd.notification_log ALTER created_at SET DEFAULT
    -- Within 2,500 ms of 2,500 ms ago is 0 to 5 s ago: see _ring(). NULL, which does not ring: no right to read the bell.
    CASE WHEN abs(date_part('epoch', clock_timestamp()) * 1000 - pg_sequence_last_value('outboxd.doorbell'::regclass) - 2500) <= 2500
         THEN outboxd._ring_at_insert() ELSE clock_timestamp() END;

-- Room on the page for one more version of every row, not of every seventh: a backlog is sent page by page, and all rows of a
-- page become SENT in one statement, before anything can be pruned. At 85, 60 % of them moved to another page and needed
-- new index entries; heap and primary key together end up equally big (30,000 rows: 8.4 MB either way).
ALTER TABLE outboxd.notification_log SET (fillfactor = 50);
