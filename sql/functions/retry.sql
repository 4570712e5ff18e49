-- One dead letter (or canceled notification) back to work.
CREATE OR REPLACE FUNCTION outboxd.retry(id bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF outboxd._requeue(ARRAY[retry.id]) = 1 THEN
        INSERT INTO outboxd.audit (action, subject, affected) VALUES ('retry', retry.id::text, 1);
        RETURN true;
    END IF;
    RAISE NOTICE 'notification % is %: only FAILED and CANCELED are retried (a SENT one: outboxd.resend(id))',
        retry.id, outboxd._status_for('retry', retry.id);
    RETURN false;
END $$;

COMMENT ON FUNCTION outboxd.retry IS
    'FAILED or CANCELED → QUEUED, from the first channel of its route. False: it was neither.';
