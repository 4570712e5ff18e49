-- One notification, whole.
-- $1 id
-- Locks: none. Index: notification_log_pkey, outbox_pkey, attempt_notification.
SELECT n.id, n.topic, n.recipient, n.status, n.channel, n.attempts, n.next_attempt_at, n.worker, n.error, n.http_status, n.dedup_key,
       n.ordering_key, n.created_at, n.send_at, n.expires_at, n.finished_at, n.provider_id,
       n.payload::text AS payload, n.headers::text AS headers
  FROM outboxd.notifications n WHERE n.id = $1::bigint
