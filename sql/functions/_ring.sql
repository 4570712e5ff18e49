-- Rings the doorbell if an instance listens and is not busy: the bell was set in the last 5 s and is not ahead of now.
-- `SET outboxd.ring = off` serves transactions that will be PREPAREd: they may not NOTIFY.
CREATE OR REPLACE FUNCTION outboxd._ring() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    age_ms double precision := date_part('epoch', clock_timestamp()) * 1000 - pg_sequence_last_value('outboxd.doorbell'::regclass);
BEGIN
    IF age_ms >= 0 AND age_ms < 5000
       AND lower(coalesce(current_setting('outboxd.ring', true), '')) NOT IN ('off', 'false', 'no', '0')
    THEN
        PERFORM pg_notify('outboxd', '');
    END IF;
END $$;
