-- Statement trigger: every INSERT into notification_log, by notify() or by any ORM, rings; see _ring().
CREATE OR REPLACE FUNCTION outboxd._ring_after_insert() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    -- As in _ring(), but by expressions alone, which plpgsql evaluates without a query: every notify() pays for this.
    age_ms double precision := date_part('epoch', clock_timestamp()) * 1000
                               - pg_sequence_last_value('outboxd.doorbell'::regclass);
BEGIN
    IF age_ms >= 0 AND age_ms < 5000
       AND lower(coalesce(current_setting('outboxd.ring', true), '')) NOT IN ('off', 'false', 'no', '0') THEN
        PERFORM pg_notify('outboxd', '');
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
