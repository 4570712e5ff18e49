-- What is waiting, working, dead: the active set and the partial indexes only, never the history.
-- Of the live rows only the oldest of each group is looked up in the log: ids are drawn in order of creation.
CREATE OR REPLACE VIEW outboxd.queue_state AS
SELECT coalesce(t.name, '(new topic)') AS topic,
       CASE WHEN g.working THEN 'PROCESSING' ELSE 'QUEUED' END AS status,
       g.count,
       clock_timestamp() - (SELECT l.created_at FROM outboxd.notification_log l WHERE l.id = g.oldest) AS oldest_age
  FROM (SELECT o.lane, o.state = 2 AS working, count(*) AS count, min(o.id) AS oldest FROM outboxd.outbox o GROUP BY 1, 2) g
  LEFT JOIN outboxd.topic t ON t.lane = g.lane
UNION ALL
SELECT l.topic, 'PENDING', count(*), greatest(clock_timestamp() - min(l.due_at), '0')
  FROM outboxd.notification_log l WHERE l.due_at IS NOT NULL GROUP BY 1
UNION ALL
SELECT l.topic, 'FAILED', count(*), clock_timestamp() - min(l.failed_at)
  FROM outboxd.notification_log l WHERE l.failed_at IS NOT NULL GROUP BY 1;

COMMENT ON VIEW outboxd.queue_state IS 'Per topic and status: how many, and since when the oldest. SENT and CANCELED are history: see outboxd.notifications.';
COMMENT ON COLUMN outboxd.queue_state.topic IS 'What it is about.';
COMMENT ON COLUMN outboxd.queue_state.status IS 'PENDING (not yet due), QUEUED (waiting), PROCESSING (a worker is calling), FAILED (dead letter).';
COMMENT ON COLUMN outboxd.queue_state.count IS 'How many rows.';
COMMENT ON COLUMN outboxd.queue_state.oldest_age IS 'Age of the oldest: since notify(), since it was due (PENDING), since it failed (FAILED).';
