-- FAILED or CANCELED → QUEUED for the ids given; returns how many. The epoch goes up, so a message of the first
-- life is a stale copy; the route starts again at its first channel. Guarded by the status: of two operators at
-- once, and against a late success, one wins.
CREATE OR REPLACE FUNCTION outboxd._requeue(ids bigint[]) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    affected bigint;
BEGIN
    WITH wanted AS (
        SELECT l.id FROM outboxd.notification_log l
         WHERE l.id = ANY (ids) AND l.status IN ('FAILED', 'CANCELED') ORDER BY l.id FOR UPDATE
    ), requeued AS (
        UPDATE outboxd.notification_log l
           SET status = 'QUEUED', finished_at = NULL, failed_at = NULL, error = NULL, http_status = NULL, epoch = l.epoch + 1
          FROM wanted w WHERE l.id = w.id AND l.status IN ('FAILED', 'CANCELED')
        RETURNING l.id, l.epoch, l.attempts, l.topic, l.ordering_key)
    INSERT INTO outboxd.outbox (id, lane, epoch, attempts, ordering_key, state)
    SELECT r.id, coalesce(t.lane, 0), r.epoch, r.attempts, r.ordering_key, CASE WHEN r.ordering_key IS NULL THEN 0 ELSE 3 END
      FROM requeued r LEFT JOIN outboxd.topic t ON t.name = r.topic ORDER BY r.id;
    GET DIAGNOSTICS affected = ROW_COUNT;
    PERFORM outboxd._ring();
    RETURN affected;
END $$;
