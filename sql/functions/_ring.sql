-- Rings the doorbell if an instance dozes or sleeps and listens: the bell was set in the last 5 s and is not ahead of now.
-- A bell that nobody has set for longer is taken down (`is_called` false, so that it reads NULL): whoever writes next sees at
-- a glance that there is nothing to ring, and need not look at the time. The instance that had just set it notices, because
-- we hold the lock below while we do it: see wakeup_read_doorbell.
-- Call it only after this transaction has taken its ROW EXCLUSIVE lock on outbox, notification_log or event_outbox: an
-- instance that goes to sleep first sets the doorbell, then waits for the transactions that held that lock;
-- whoever locks later reads the new value here.
-- `SET outboxd.ring = off` serves transactions that will be PREPAREd: they may not NOTIFY.
CREATE OR REPLACE FUNCTION outboxd._ring() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    bell   record;
    age_ms double precision;
BEGIN
    SELECT last_value AS set_to, is_called AS is_up INTO STRICT bell FROM outboxd.doorbell;
    age_ms := date_part('epoch', clock_timestamp()) * 1000 - bell.set_to;
    IF age_ms >= 0 AND age_ms < 5000
       AND lower(coalesce(current_setting('outboxd.ring', true), '')) NOT IN ('off', 'false', 'no', '0')
    THEN
        PERFORM pg_notify('outboxd', '');
    ELSIF age_ms >= 5000 AND bell.is_up THEN
        PERFORM setval('outboxd.doorbell', bell.set_to, false);
    END IF;
END $$;
