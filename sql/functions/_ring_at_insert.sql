-- The default of notification_log.created_at calls this when the bell may have to be rung: every INSERT, by notify() or
-- by any ORM, rings.
CREATE OR REPLACE FUNCTION outboxd._ring_at_insert() RETURNS timestamptz
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM outboxd._ring();
    RETURN clock_timestamp();
END $$;
