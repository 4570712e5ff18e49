-- Counts what waits, works and is dead, by topic: the active set and the partial indexes, never the history. The
-- oldest live row of each group is the one with the lowest id; only that one is looked up in the log.
--   PENDING since it was due · QUEUED, PROCESSING since notify() or send_at · FAILED since it failed
CREATE OR REPLACE VIEW outboxd._census AS
SELECT coalesce(t.name, '(new topic)') AS topic, CASE WHEN g.working THEN 'PROCESSING' ELSE 'QUEUED' END AS status, g.count,
       (SELECT greatest(l.created_at, l.send_at) FROM outboxd.notification_log l WHERE l.id = g.oldest) AS oldest_since
  FROM (SELECT o.lane, o.state = 2 AS working, count(*) AS count, min(o.id) AS oldest FROM outboxd.outbox o GROUP BY 1, 2) g
  LEFT JOIN outboxd.topic t ON t.lane = g.lane
UNION ALL
SELECT l.topic, 'PENDING', count(*), min(l.due_at)
  FROM outboxd.notification_log l WHERE l.due_at IS NOT NULL GROUP BY 1
UNION ALL
SELECT l.topic, 'FAILED', count(*), min(l.failed_at)
  FROM outboxd.notification_log l WHERE l.failed_at IS NOT NULL GROUP BY 1;
