-- Counts what waits, by reason, topic and channel, and by what holds it there: the limit, or of what is held on purpose
-- what of the channel is. Readers may call it, so that is told by its place in channel_state, which says nothing of an
-- origin. The active set and the PENDING rows, never the history. The oldest of each group is looked up like that of
-- _count_active().
-- A function and not a view, for the same reason as _count_active(). Whatever the statistics said when it was planned,
-- when the outbox may have been empty, no table is scanned for each row: what is joined is hashed or probed.
-- Locks: none. Index: those of _wait; notification_log_pkey (three probes a group), notification_log_due.
CREATE OR REPLACE FUNCTION outboxd._count_waiting()
RETURNS TABLE (reason text, topic text, channel text, held tid, limited_by text, per_second double precision, is_lag boolean, count bigint,
               waits_since timestamptz, ready_since timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER ROWS 20 SET search_path = pg_catalog, pg_temp
SET jit = off SET enable_seqscan = off SET enable_mergejoin = off SET enable_hashjoin = on AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
        SELECT g.reason, g.topic, g.channel, (SELECT h.ctid FROM outboxd.channel_state h WHERE h.channel = g.channel AND h.origin = g.origin), g.limited_by, g.per_second, g.is_lag, g.n,
               (SELECT min(greatest(l.created_at, l.send_at)) FROM outboxd.notification_log l WHERE l.id IN (g.first[2], g.lowest)),
               least(g.due_since, (SELECT greatest(l.created_at, l.send_at) FROM outboxd.notification_log l WHERE l.id = g.first_fresh[2]))
          FROM (SELECT w.reason, w.topic, w.channel,
                       CASE WHEN w.reason IN ('channel paused', 'circuit open', 'provider asked to wait') THEN coalesce(w.origin, '') END AS origin,
                       w.limited_by, w.per_second, w.is_lag, count(*) AS n, min(ARRAY[w.seq, w.id]) AS first,
                       min(w.id) AS lowest, min(w.lag_since) FILTER (WHERE w.is_lag) AS due_since,
                       min(ARRAY[w.seq, w.id]) FILTER (WHERE w.is_lag AND w.lag_since IS NULL) AS first_fresh
                  FROM outboxd._wait w WHERE w.state <> 'pending' GROUP BY 1, 2, 3, 4, 5, 6, 7) g
        UNION ALL
        SELECT w.reason, w.topic, NULL, NULL, NULL, NULL, false, count(*), min(w.since), NULL
          FROM outboxd._wait w WHERE w.state = 'pending' GROUP BY 1, 2;
END $$;
