-- How long until the next timer runs out, in ms; no row: none is set.
-- $1 how far to look back in ms
-- Locks: none. Index: outbox_retry.
SELECT greatest(extract(epoch FROM o.retry_at - clock_timestamp()) * 1000, 0)::bigint
  FROM outboxd.outbox o WHERE o.retry_at > now() - $1::bigint * interval '1 ms' ORDER BY o.retry_at LIMIT 1
