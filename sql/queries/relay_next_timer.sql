-- How long until the next timer runs out, in ms; no row: none is set.
-- $1 timers after (soft lower bound)
-- Locks: none. Index: outbox_retry.
SELECT greatest(extract(epoch FROM o.retry_at - clock_timestamp()) * 1000, 0)::bigint
  FROM outboxd.outbox o WHERE o.retry_at > $1::timestamptz ORDER BY o.retry_at LIMIT 1
