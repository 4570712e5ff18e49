-- The last 100 attempts of one notification that did not end in a recorded success, newest first.
-- $1 id
-- Locks: none. Index: attempt_notification.
SELECT a.id, a.number, a.channel, a.started_at, a.ended_at, a.duration_ms, a.outcome, a.http_status, a.error, a.response, a.worker,
       a.provider_id
  FROM outboxd.attempts a WHERE a.notification_id = $1::bigint ORDER BY a.id DESC LIMIT 100
