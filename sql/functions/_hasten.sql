-- Rows that wait for their time on a channel (origin ''), or on one origin of it, are due at once, the soonest first: it
-- was held and may be called again. The channel of a row is its route's at its position, by the routes of the running
-- instances; its origin is what it was put back for. Others keep their time. Returns how many.
-- Interleavings: what a relay, a cancel or another of us has locked is passed over: it is on its way. The state is
-- checked under the lock.
-- Locks: the rows. Index: outbox_due: one step for each topic, then the rows of it down to those taken; of an origin
-- outbox_waits_for; then by ctid.
CREATE OR REPLACE FUNCTION outboxd._hasten(channel text, origin text, rows_max integer) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    found    tid[];
    hastened bigint;
BEGIN
    IF origin <> '' THEN
        found := ARRAY(
            SELECT f.ctid FROM outboxd.outbox f
             WHERE f.waits_for = origin AND f.waits_for <> '' AND f.retry_at > now() AND f.state = 'ready'
               AND (SELECT r.channel FROM outboxd.route r WHERE r.topic IN (f.topic, 'default') AND r.position <= f.route_step
                     ORDER BY r.topic = f.topic DESC, r.position DESC LIMIT 1) = channel
             ORDER BY f.waits_for, f.retry_at LIMIT rows_max FOR UPDATE OF f SKIP LOCKED);
    ELSE
        found := ARRAY(
            WITH RECURSIVE t (topic) AS (
                (SELECT o.topic FROM outboxd.outbox o WHERE o.retry_at IS NOT NULL ORDER BY o.topic, o.retry_at LIMIT 1)
                UNION ALL
                SELECT n.topic FROM t CROSS JOIN LATERAL (
                    SELECT o.topic FROM outboxd.outbox o WHERE o.topic > t.topic AND o.retry_at IS NOT NULL
                     ORDER BY o.topic, o.retry_at LIMIT 1) n
            ), meant AS (
                SELECT t.topic, r.position, r.is_last FROM t CROSS JOIN LATERAL (
                       SELECT s.topic FROM outboxd.route s WHERE s.topic IN (t.topic, 'default') ORDER BY s.topic = t.topic DESC LIMIT 1) own
                  JOIN outboxd._route r ON r.topic = own.topic
                 WHERE r.channel = _hasten.channel
            )
            SELECT w.ctid FROM meant m CROSS JOIN LATERAL (
                   SELECT f.ctid FROM outboxd.outbox f
                    WHERE f.topic = m.topic AND f.retry_at > now() AND f.state = 'ready' AND coalesce(f.waits_for, '') = ''
                      AND CASE WHEN m.position < f.route_step THEN m.is_last ELSE m.position = f.route_step END
                    ORDER BY f.topic, f.retry_at LIMIT rows_max FOR UPDATE SKIP LOCKED) w
             LIMIT rows_max);
    END IF;
    UPDATE outboxd.outbox o SET retry_at = clock_timestamp() WHERE o.ctid = ANY (found) AND o.state = 'ready';
    GET DIAGNOSTICS hastened = ROW_COUNT;
    RETURN hastened;
END $$;
