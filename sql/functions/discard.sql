-- A dead letter that nobody will retry: FAILED → CANCELED. It leaves the dead letters and keeps its error; retry() can
-- still bring it back, and a late success still wins.
-- Interleavings: guarded by the status. Of a retry and a discard at once one wins, and so of a late success and a
-- discard.
-- Locks: the row of the log. Index: notification_log_pkey.
CREATE OR REPLACE FUNCTION outboxd.discard(id bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    why text;
BEGIN
    UPDATE outboxd.notification_log l SET status = 'CANCELED', finished_at = clock_timestamp(), failed_at = NULL
     WHERE l.id = discard.id AND l.status = 'FAILED' RETURNING l.error INTO why;
    IF FOUND THEN
        INSERT INTO outboxd.audit (action, subject, affected, detail)
        VALUES ('discard', discard.id::text, 1, jsonb_build_object('error', why));
        RETURN true;
    END IF;
    RAISE NOTICE 'notification % is %: only FAILED ones are discarded (one on its way: outboxd.cancel(id))',
        discard.id, outboxd._status_for('discard', discard.id);
    RETURN false;
END $$;

COMMENT ON FUNCTION outboxd.discard IS
    'FAILED → CANCELED: a dead letter that nobody will retry leaves outboxd.dead_letters and keeps its error. False: it was not FAILED.';
