-- Rings the doorbell if an instance dozes or sleeps and listens: the bell was set in the last 5 s and is not ahead of now.
-- Call it only after this transaction has taken its ROW EXCLUSIVE lock on outbox, notification_log or event_outbox: an
-- instance that goes to sleep first sets the doorbell, then waits for the transactions that held that lock;
-- whoever locks later reads the new value here.
-- `SET outboxd.ring = off` serves transactions that will be PREPAREd: they may not NOTIFY.
CREATE OR REPLACE FUNCTION outboxd._ring() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- The subquery keeps the clock from being read twice: a volatile function is not pulled up.
    PERFORM pg_notify('outboxd', '')
       FROM (SELECT date_part('epoch', clock_timestamp()) * 1000 - last_value AS age_ms FROM outboxd.doorbell) bell
      WHERE age_ms >= 0 AND age_ms < 5000
        AND lower(coalesce(current_setting('outboxd.ring', true), '')) NOT IN ('off', 'false', 'no', '0');
END $$;
