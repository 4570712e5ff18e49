-- Rings the doorbell if an instance sleeps and listens. Call it only after this transaction has taken its
-- ROW EXCLUSIVE lock on notification_log (or event_outbox): an instance that goes to sleep first sets the
-- doorbell, then waits for the transactions that held that lock; whoever locks later reads the new value here.
-- `SET outboxd.ring = off` serves transactions that will be PREPAREd: they may not NOTIFY.
CREATE OR REPLACE FUNCTION outboxd._ring() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    bell_ms bigint;
    now_ms  bigint := extract(epoch FROM clock_timestamp()) * 1000;
BEGIN
    SELECT last_value INTO bell_ms FROM outboxd.doorbell;
    IF bell_ms <= now_ms AND now_ms < bell_ms + 5000
       AND coalesce(current_setting('outboxd.ring', true), 'on') <> 'off' THEN
        PERFORM pg_notify('outboxd', '');
    END IF;
END $$;
