-- How long until the next PENDING row is due, in ms; no row: none is waiting.
-- $1 how far to look back in ms
-- Locks: none. Index: notification_log_due.
SELECT greatest(extract(epoch FROM l.due_at - clock_timestamp()) * 1000, 0)::bigint
  FROM outboxd.notification_log l
 WHERE l.due_at > now() - $1::bigint * interval '1 ms' ORDER BY l.due_at LIMIT 1
