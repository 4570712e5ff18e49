-- FAILED → CANCELED for the ids given; returns how many. See discard().
-- Interleavings: guarded by the status. Of a retry and a discard at once one wins, and so of a late success and a
-- discard.
-- Locks: the rows of the log, in the order of their ids. Index: notification_log_pkey.
CREATE OR REPLACE FUNCTION outboxd._discard(ids bigint[]) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    affected bigint;
BEGIN
    UPDATE outboxd.notification_log l SET status = 'CANCELED', finished_at = clock_timestamp(), failed_at = NULL
      FROM (SELECT w.id FROM outboxd.notification_log w WHERE w.id = ANY (ids) AND w.status = 'FAILED' ORDER BY w.id FOR UPDATE) w
     WHERE l.id = w.id AND l.status = 'FAILED';
    GET DIAGNOSTICS affected = ROW_COUNT;
    RETURN affected;
END $$;
