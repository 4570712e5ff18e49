-- Rows that are ready and not yet published although they could be, and since when the first of them. What is held on
-- purpose does not count, other checks tell of it: topics that an operator paused or that no route serves, and channels
-- that are paused, have an open or half-open circuit, or whose provider asked to wait. Which of them holds a row depends
-- on its topic and its position in the route, so the rows are grouped by these first.
-- Whatever came back is ready since `retry_at`; of the fresh ones only the first of each group is looked up in the log.
-- One pass over the active set. Locks: none. Index: notification_log_pkey, one probe a group.
CREATE OR REPLACE VIEW outboxd._ready AS
WITH ready AS (
    SELECT o.topic, o.route_step, count(*) AS rows, min(o.retry_at) AS due_since,
           (min(ARRAY[o.seq, o.id]) FILTER (WHERE o.retry_at IS NULL))[2] AS first_fresh
      FROM outboxd.outbox o
     WHERE o.state = 'ready' AND (o.retry_at IS NULL OR o.retry_at <= now()) GROUP BY 1, 2
)
SELECT coalesce(sum(r.rows), 0)::bigint AS ready,
       min(least(r.due_since, (SELECT greatest(l.created_at, l.send_at) FROM outboxd.notification_log l WHERE l.id = r.first_fresh)))
           AS ready_since
  FROM ready r CROSS JOIN outboxd._routed w
 WHERE NOT EXISTS (SELECT FROM outboxd.topic t WHERE t.name = r.topic AND t.paused_at IS NOT NULL)
   AND (NOT w.published && ARRAY[r.topic, 'default'] OR NOT w.called && ARRAY[r.topic, 'default']) IS NOT TRUE
   AND NOT EXISTS (
       SELECT FROM outboxd.route s JOIN outboxd.channel_state h ON h.channel = s.channel AND h.origin = ''
        WHERE s.position = r.route_step
          AND s.topic = CASE WHEN EXISTS (SELECT FROM outboxd.route o WHERE o.topic = r.topic) THEN r.topic ELSE 'default' END
          AND (h.paused_at IS NOT NULL OR h.reason <> 'retry_after' OR h.held_until > now()));
