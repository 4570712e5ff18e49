-- PENDING or live → CANCELED for the ids given; what is in flight gets no further attempt. Returns how many. The same
-- races as in cancel(): PENDING rows are guarded by their status, live rows are locked before they are looked at.
CREATE OR REPLACE FUNCTION outboxd._cancel(ids bigint[]) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    pending bigint;
    live    bigint;
    keys    text[];
BEGIN
    UPDATE outboxd.notification_log l SET status = 'CANCELED', finished_at = clock_timestamp()
      FROM (SELECT w.id FROM outboxd.notification_log w WHERE w.id = ANY (ids) AND w.status = 'PENDING' ORDER BY w.id FOR UPDATE) w
     WHERE l.id = w.id AND l.status = 'PENDING';
    GET DIAGNOSTICS pending = ROW_COUNT;
    WITH held AS MATERIALIZED (
        SELECT o.id, o.state, o.epoch, o.attempts, o.ordering_key FROM outboxd.outbox o
         WHERE o.id = ANY (ids) ORDER BY o.id FOR UPDATE
    ), flagged AS (
        UPDATE outboxd.outbox o SET cancel = true FROM held h WHERE o.id = h.id AND h.state = 2 AND NOT o.cancel RETURNING o.id
    ), gone AS (
        DELETE FROM outboxd.outbox o USING held h WHERE o.id = h.id AND h.state <> 2 RETURNING o.id, h.epoch, h.attempts, h.ordering_key
    ), logged AS (
        UPDATE outboxd.notification_log l
           SET status = 'CANCELED', finished_at = clock_timestamp(), epoch = g.epoch, attempts = g.attempts
          FROM gone g WHERE l.id = g.id AND l.status = 'QUEUED'
        RETURNING l.id
    )
    SELECT (SELECT count(*) FROM flagged) + (SELECT count(*) FROM logged), (SELECT array_agg(g.ordering_key) FROM gone g) INTO live, keys;
    PERFORM outboxd._admit(keys);
    PERFORM outboxd._ring();
    RETURN pending + live;
END $$;
