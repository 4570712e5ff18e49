-- Leases that are over, or whose holder is dead. Only reading: the decision is recorded by worker_record_failures, which
-- checks again under the row's lock.
-- $1 dead instances · $2 rows at most
-- Locks: none. Index: none: one pass over the active set.
SELECT o.id, o.epoch AS token, o.instance, o.route_step, o.channel_attempts, o.attempts, coalesce(o.topic, l.topic) AS topic,
       l.expires_at <= clock_timestamp() AS expired
  FROM (SELECT o.id, o.epoch, o.instance, o.route_step, o.channel_attempts, o.attempts, o.topic FROM outboxd.outbox o
         WHERE o.state = 2 AND (o.next_at < clock_timestamp() OR o.instance = ANY ($1::int[])) LIMIT $2::int) o
  LEFT JOIN LATERAL (
       SELECT l.topic, l.expires_at FROM outboxd.notification_log l WHERE o.topic IS NULL AND l.id = o.id OFFSET 0) l ON true
 WHERE o.topic IS NOT NULL OR l.topic IS NOT NULL
