-- Counts what waits, works and is dead, by topic: the active set and the partial indexes, never the history. The oldest
-- live row of each group is the one that was queued first; only that one and the one with the lowest id, which an
-- operator may have queued again, are looked up in the log.
--   PENDING since it was due · QUEUED, PROCESSING since notify() or send_at · FAILED since it failed
-- A function and not a view, so that queue_state, which seldom needs it, is not planned as if it did: beside a long
-- history the planner takes this for so dear that it would compile the whole query first (JIT).
-- Locks: none. Index: notification_log_pkey (two probes a group), notification_log_due, notification_log_failed.
CREATE OR REPLACE FUNCTION outboxd._count_active() RETURNS TABLE (topic text, status text, count bigint, oldest_since timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER ROWS 20 SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY
        SELECT g.topic, CASE WHEN g.working THEN 'PROCESSING' ELSE 'QUEUED' END, g.n,
               (SELECT min(greatest(l.created_at, l.send_at)) FROM outboxd.notification_log l WHERE l.id IN (g.first[2], g.lowest))
          FROM (SELECT o.topic, o.state = 'processing' AS working, count(*) AS n, min(ARRAY[o.seq, o.id]) AS first, min(o.id) AS lowest
                  FROM outboxd.outbox o GROUP BY 1, 2) g
        UNION ALL
        SELECT l.topic, 'PENDING', count(*), min(l.due_at)
          FROM outboxd.notification_log l WHERE l.due_at IS NOT NULL GROUP BY 1
        UNION ALL
        SELECT l.topic, 'FAILED', count(*), min(l.failed_at)
          FROM outboxd.notification_log l WHERE l.failed_at IS NOT NULL GROUP BY 1;
END $$;
