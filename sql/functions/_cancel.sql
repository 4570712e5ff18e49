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
        SELECT o.id, o.state FROM outboxd.outbox o
         WHERE o.id = ANY (ids) ORDER BY o.id FOR UPDATE
    ), flagged AS (
        UPDATE outboxd.outbox o SET cancel = true FROM held h WHERE o.id = h.id AND h.state = 2 AND NOT o.cancel RETURNING o.id
    ), gone AS (
        DELETE FROM outboxd.outbox o USING held h WHERE o.id = h.id AND h.state <> 2 RETURNING o.*
    ), filed AS (
        INSERT INTO outboxd.notification_log (id, created_at, send_at, finished_at, status, epoch, attempts, topic, recipient, payload)
        OVERRIDING SYSTEM VALUE
        SELECT g.id, g.created_at, g.send_at, clock_timestamp(), 'CANCELED', g.epoch, g.attempts, g.topic, g.recipient, g.payload
          FROM gone g WHERE g.topic IS NOT NULL
    ), logged AS (
        UPDATE outboxd.notification_log l
           SET status = 'CANCELED', finished_at = clock_timestamp(), epoch = g.epoch, attempts = g.attempts
          FROM gone g WHERE l.id = g.id AND g.topic IS NULL AND l.status = 'QUEUED'
    )
    SELECT (SELECT count(*) FROM flagged) + (SELECT count(*) FROM gone), (SELECT array_agg(g.ordering_key) FROM gone g) INTO live, keys;
    PERFORM outboxd._admit(keys);
    PERFORM outboxd._ring();
    RETURN pending + live;
END $$;
