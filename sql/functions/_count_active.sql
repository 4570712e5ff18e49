-- Counts what waits, works and is dead, by topic: the active set and the partial indexes, never the history. The
-- oldest live row of each group is the one with the lowest id; only that one's letter is looked up.
--   PENDING since it was due · QUEUED, PROCESSING since notify() or send_at · FAILED since it failed
-- A function and not a view, so that queue_state, which seldom needs it, is not planned as if it did: beside a long
-- history the planner takes this for so dear that it would compile the whole query first (JIT).
CREATE OR REPLACE FUNCTION outboxd._count_active() RETURNS TABLE (topic text, status text, count bigint, oldest_since timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER ROWS 20 SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY
        SELECT coalesce(t.name, '(new topic)'), CASE WHEN g.working THEN 'PROCESSING' ELSE 'QUEUED' END, g.n,
               coalesce((SELECT greatest(o.created_at, o.send_at) FROM outboxd.outbox o WHERE o.id = g.oldest),
                        (SELECT greatest(l.created_at, l.send_at) FROM outboxd.notification_log l WHERE l.id = g.oldest))
          FROM (SELECT o.lane, o.state = 2 AS working, count(*) AS n, min(o.id) AS oldest FROM outboxd.outbox o GROUP BY 1, 2) g
          LEFT JOIN outboxd.topic t ON t.lane = g.lane
        UNION ALL
        SELECT l.topic, 'PENDING', count(*), min(l.due_at)
          FROM outboxd.notification_log l WHERE l.due_at IS NOT NULL GROUP BY 1
        UNION ALL
        SELECT l.topic, 'FAILED', count(*), min(l.failed_at)
          FROM outboxd.notification_log l WHERE l.failed_at IS NOT NULL GROUP BY 1;
END $$;
