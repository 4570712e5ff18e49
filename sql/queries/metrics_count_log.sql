-- What waits to become due and what is dead, by topic: never the history.
-- Parameters: none. Locks: none. Index: notification_log_due, notification_log_failed, each read alone.
SELECT l.topic, 'PENDING' AS status, count(*) AS rows
  FROM outboxd.notification_log l WHERE l.due_at IS NOT NULL GROUP BY 1
UNION ALL
SELECT l.topic, 'FAILED', count(*)
  FROM outboxd.notification_log l WHERE l.failed_at IS NOT NULL GROUP BY 1
