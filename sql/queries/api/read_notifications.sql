-- Notifications by their ids, in the order given.
-- $1 ids · $2 whether with payload and headers: not for a page of them, which would have no bound
-- Locks: none. Index: notification_log_pkey, outbox_pkey, attempt_notification.
SELECT n.id, n.topic, n.recipient, n.status, n.channel, n.attempts, n.next_attempt_at, n.worker, n.error, n.http_status, n.dedup_key,
       n.ordering_key, n.created_at, n.send_at, n.expires_at, n.finished_at, n.provider_id,
       CASE WHEN $2::bool THEN n.payload::text END AS payload, CASE WHEN $2::bool THEN n.headers::text END AS headers
  FROM unnest($1::bigint[]) WITH ORDINALITY w(id, place)
  -- OFFSET 0 keeps this a probe of the primary key.
  CROSS JOIN LATERAL (SELECT v.* FROM outboxd.notifications v WHERE v.id = w.id OFFSET 0) n
 ORDER BY w.place
