-- FAILED or CANCELED → QUEUED for the ids given; returns how many. The epoch goes up, so a message of the first
-- life is a stale copy; the route starts again at its first channel. What comes back carries retry_at; a row with a key
-- draws a new number, goes last, and waits for its turn.
-- Interleavings: guarded by the status. Of two operators at once, and against a late success, one wins; a row that
-- retention has taken is not there.
-- Locks: the rows of the log, in the order of their ids; what _admit() locks.
-- Index: notification_log_pkey.
CREATE OR REPLACE FUNCTION outboxd._requeue(ids bigint[]) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    affected bigint;
    topics   text[];
    keys     text[];
BEGIN
    WITH wanted AS MATERIALIZED (
        SELECT l.id FROM outboxd.notification_log l
         WHERE l.id = ANY (ids) AND l.status IN ('FAILED', 'CANCELED') ORDER BY l.id FOR UPDATE
    ), requeued AS (
        UPDATE outboxd.notification_log l
           SET status = 'QUEUED', finished_at = NULL, failed_at = NULL, error = NULL, http_status = NULL, channel = NULL,
               provider_id = NULL, epoch = l.epoch + 1
          FROM wanted w WHERE l.id = w.id AND l.status IN ('FAILED', 'CANCELED')
        RETURNING l.id, l.epoch, l.attempts, l.topic, l.ordering_key
    ), queued AS (
        INSERT INTO outboxd.outbox (id, epoch, attempts, topic, ordering_key, state, retry_at)
        SELECT r.id, r.epoch, r.attempts, r.topic, r.ordering_key,
               CASE WHEN r.ordering_key IS NULL THEN 'ready' ELSE 'blocked' END::outboxd.state,
               CASE WHEN r.ordering_key IS NULL THEN clock_timestamp() END
          FROM requeued r ORDER BY r.id
        RETURNING topic, ordering_key
    )
    SELECT count(*), array_agg(q.topic) FILTER (WHERE q.ordering_key IS NOT NULL),
           array_agg(q.ordering_key) FILTER (WHERE q.ordering_key IS NOT NULL) INTO affected, topics, keys FROM queued q;
    IF keys IS NOT NULL THEN
        PERFORM outboxd._admit(topics, keys);
    END IF;
    PERFORM outboxd._ring();
    RETURN affected;
END $$;
