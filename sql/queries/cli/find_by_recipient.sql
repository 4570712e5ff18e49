-- The newest notifications to a recipient, as `outboxd find` shows them.
-- $1 recipient · $2 topic (may be NULL) · $3 how many at most
-- Locks: none. Index: notification_log_recipient, from its end.
SELECT n.id, n.created_at, n.topic, n.status, n.channel, n.attempts, n.http_status, n.error, n.finished_at
  FROM outboxd.notifications n WHERE n.recipient = $1::text AND ($2::text IS NULL OR n.topic = $2::text)
 ORDER BY n.id DESC LIMIT $3::bigint
