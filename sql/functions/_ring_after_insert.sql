-- Statement trigger: every INSERT into notification_log, by notify() or by any ORM, rings.
CREATE OR REPLACE FUNCTION outboxd._ring_after_insert() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    bell_ms bigint;
    now_ms  bigint := extract(epoch FROM clock_timestamp()) * 1000;
BEGIN
    -- The body of _ring() again: a nested call would double the cost of every notify().
    SELECT last_value INTO bell_ms FROM outboxd.doorbell;
    IF bell_ms <= now_ms AND now_ms < bell_ms + 5000
       AND coalesce(current_setting('outboxd.ring', true), 'on') <> 'off' THEN
        PERFORM pg_notify('outboxd', '');
    END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER ring AFTER INSERT ON outboxd.notification_log
    FOR EACH STATEMENT EXECUTE FUNCTION outboxd._ring_after_insert();
