-- The newest notifications to a recipient, as `outboxd find` shows them: of those that have not ended, why they wait.
-- $1 recipient · $2 topic (may be NULL) · $3 how many at most
-- Locks: none. Index: notification_log_recipient, from its end; those of why().
SELECT n.id, n.created_at, n.topic, n.status, n.channel, n.attempts, n.http_status, n.error, n.finished_at,
       w.reason AS waits, w.explanation, w.action, w.until, w.behind
  FROM (SELECT v.id, v.created_at, v.topic, v.status, v.channel, v.attempts, v.http_status, v.error, v.finished_at
          FROM outboxd.notifications v WHERE v.recipient = $1::text AND ($2::text IS NULL OR v.topic = $2::text)
         ORDER BY v.id DESC LIMIT $3::bigint) n
  LEFT JOIN LATERAL (SELECT y.* FROM outboxd.why(n.id) y) w ON n.finished_at IS NULL
 ORDER BY n.id DESC
