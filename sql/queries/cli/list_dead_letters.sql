-- The newest dead letters that match a filter, as `outboxd dead list` shows them.
-- $1 filter, with the keys of retry_where · $2 how many at most
-- Locks: none. Index: notification_log_failed, from its end.
SELECT d.id, d.failed_at, d.topic, d.recipient, d.channel, d.attempts, d.http_status, d.error, d.created_at, d.payload, d.response
  FROM outboxd.dead_letters d
 WHERE d.failed_at >= coalesce(($1::jsonb->>'since')::timestamptz, '-infinity')
   AND d.failed_at < coalesce(($1::jsonb->>'until')::timestamptz, 'infinity')
   AND ($1::jsonb->>'topic' IS NULL OR d.topic = $1::jsonb->>'topic')
   AND ($1::jsonb->>'error_like' IS NULL OR d.error LIKE $1::jsonb->>'error_like')
   AND ($1::jsonb->>'channel' IS NULL OR d.channel = $1::jsonb->>'channel')
   AND ($1::jsonb->>'http_status' IS NULL OR d.http_status = ($1::jsonb->>'http_status')::smallint)
   AND ($1::jsonb->>'recipient' IS NULL OR d.recipient = $1::jsonb->>'recipient')
 ORDER BY d.failed_at DESC LIMIT $2::bigint
