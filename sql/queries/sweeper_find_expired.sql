-- Leases that are over, or whose holder is dead. Only reading: the decision is recorded by worker_record_failures, which
-- checks again under the row's lock.
-- $1 dead instances · $2 rows at most
-- Locks: none. Index: none: one pass over the active set.
SELECT o.id, o.epoch AS token, o.instance, o.channel, o.channel_attempts, o.attempts, l.topic, l.expires_at <= clock_timestamp() AS expired
  FROM (SELECT o.id, o.epoch, o.instance, o.channel, o.channel_attempts, o.attempts FROM outboxd.outbox o
         WHERE o.state = 2 AND (o.next_at < clock_timestamp() OR o.instance = ANY ($1::int[])) LIMIT $2::int) o
  JOIN outboxd.notification_log l ON l.id = o.id
