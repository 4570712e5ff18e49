-- Rows that wait for their time on a channel are due at once, the soonest first: the channel was held and may be called
-- again. The channel of a row is its route's at its position, by the routes of the running instances. Returns how many.
-- Interleavings: what a relay, a cancel or another of us has locked is passed over: it is on its way. The state is
-- checked under the lock.
-- Locks: the rows. Index: outbox_due: one step for each topic, then the rows taken of it; then by ctid.
CREATE OR REPLACE FUNCTION outboxd._hasten(channel text, rows_max integer) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    hastened bigint;
BEGIN
    WITH RECURSIVE t (topic) AS (
        (SELECT o.topic FROM outboxd.outbox o WHERE o.retry_at IS NOT NULL ORDER BY o.topic, o.retry_at LIMIT 1)
        UNION ALL
        SELECT n.topic FROM t CROSS JOIN LATERAL (
            SELECT o.topic FROM outboxd.outbox o WHERE o.topic > t.topic AND o.retry_at IS NOT NULL
             ORDER BY o.topic, o.retry_at LIMIT 1) n
    ), meant AS (
        SELECT t.topic, r.position FROM t CROSS JOIN LATERAL (
               SELECT s.topic FROM outboxd.route s WHERE s.topic IN (t.topic, 'default') ORDER BY s.topic = t.topic DESC LIMIT 1) own
          JOIN outboxd.route r ON r.topic = own.topic
         WHERE r.channel = _hasten.channel
    ), changed AS (
        UPDATE outboxd.outbox o SET retry_at = clock_timestamp()
         WHERE o.ctid = ANY (ARRAY(
               SELECT w.ctid FROM meant m CROSS JOIN LATERAL (
                      SELECT f.ctid FROM outboxd.outbox f
                       WHERE f.topic = m.topic AND f.retry_at > now() AND f.state = 'ready' AND f.route_step = m.position
                       ORDER BY f.topic, f.retry_at LIMIT rows_max FOR UPDATE SKIP LOCKED) w
                LIMIT rows_max))
           AND o.state = 'ready'
        RETURNING 1
    )
    SELECT count(*) INTO hastened FROM changed;
    RETURN hastened;
END $$;
