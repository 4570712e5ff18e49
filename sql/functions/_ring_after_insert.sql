-- Statement trigger: every INSERT into notification_log, by notify() or by any ORM, rings; see _ring().
CREATE OR REPLACE FUNCTION outboxd._ring_after_insert() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    -- As in _ring(), but by one expression, which plpgsql evaluates without a query, and with every name written out
    -- instead of a search_path (see notify()): every call pays for this. Within 2,500 ms of 2,500 ms ago is 0 to 5 s ago.
    IF pg_catalog.abs(pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.*) 1000
        OPERATOR(pg_catalog.-) pg_catalog.pg_sequence_last_value('outboxd.doorbell'::pg_catalog.regclass)
        OPERATOR(pg_catalog.-) 2500) OPERATOR(pg_catalog.<=) 2500 THEN
        PERFORM outboxd._ring();
    END IF;
    RETURN NULL;
END $$;

-- CREATE OR REPLACE TRIGGER would wait for every open transaction of the app, and the app's next INSERTs behind
-- it: only the first installation may lock the table.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_trigger
                    WHERE tgrelid = 'outboxd.notification_log'::pg_catalog.regclass AND tgname = 'ring') THEN
        CREATE TRIGGER ring AFTER INSERT ON outboxd.notification_log
            FOR EACH STATEMENT EXECUTE FUNCTION outboxd._ring_after_insert();
    END IF;
END $$;
