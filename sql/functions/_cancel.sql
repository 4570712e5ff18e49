-- PENDING or live → CANCELED for the ids given; what is in flight gets no further attempt. Returns how many.
-- Interleavings: PENDING rows are guarded by their status: the producer or we. Live rows are locked before they are
-- read, so either the claim came before (the flag stops further attempts) or it finds nothing to claim. A row that the
-- producer releases meanwhile is PENDING for the first statement or live for the second, which reads later.
-- Locks: the row of origin while there is a copy; the rows of the log, then those of the outbox, each in the order of their ids; what _admit() locks.
-- Index: notification_log_pkey, outbox_pkey.
CREATE OR REPLACE FUNCTION outboxd._cancel(ids bigint[]) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    copied  bigint;
    pending bigint;
    live    bigint;
    topics  text[];
    keys    text[];
BEGIN
    -- What a copy brought is in neither of the two, and does not move between them meanwhile.
    PERFORM FROM outboxd.origin o WHERE o.phase <> 'own' FOR SHARE;
    WITH gone AS (
        DELETE FROM outboxd.copied c WHERE c.id = ANY (ids) RETURNING c.id, c.epoch, c.attempts
    )
    UPDATE outboxd.notification_log l
       SET status = 'CANCELED', finished_at = clock_timestamp(), epoch = g.epoch, attempts = g.attempts
      FROM gone g WHERE l.id = g.id AND l.status = 'QUEUED';
    GET DIAGNOSTICS copied = ROW_COUNT;
    UPDATE outboxd.notification_log l SET status = 'CANCELED', finished_at = clock_timestamp()
      FROM (SELECT w.id FROM outboxd.notification_log w WHERE w.id = ANY (ids) AND w.status = 'PENDING' ORDER BY w.id FOR UPDATE) w
     WHERE l.id = w.id AND l.status = 'PENDING';
    GET DIAGNOSTICS pending = ROW_COUNT;
    WITH held AS MATERIALIZED (
        SELECT o.id, o.state FROM outboxd.outbox o WHERE o.id = ANY (ids) ORDER BY o.id FOR UPDATE
    ), flagged AS (
        UPDATE outboxd.outbox o SET cancel = true
          FROM held h WHERE o.id = h.id AND h.state = 'processing' AND NOT o.cancel
        RETURNING o.id
    ), gone AS (
        DELETE FROM outboxd.outbox o USING held h WHERE o.id = h.id AND h.state <> 'processing'
        RETURNING o.id, o.epoch, o.attempts, o.topic, o.ordering_key
    ), logged AS (
        UPDATE outboxd.notification_log l
           SET status = 'CANCELED', finished_at = clock_timestamp(), epoch = g.epoch, attempts = g.attempts
          FROM gone g WHERE l.id = g.id AND l.status = 'QUEUED'
    )
    SELECT (SELECT count(*) FROM flagged) + count(*),
           array_agg(g.topic) FILTER (WHERE g.ordering_key IS NOT NULL),
           array_agg(g.ordering_key) FILTER (WHERE g.ordering_key IS NOT NULL) INTO live, topics, keys FROM gone g;
    IF keys IS NOT NULL THEN
        PERFORM outboxd._admit(topics, keys);
        PERFORM outboxd._ring();
    END IF;
    RETURN copied + pending + live;
END $$;
