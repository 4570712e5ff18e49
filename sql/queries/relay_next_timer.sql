-- How long until the next timer runs out, in ms; no row: none is set. It may be void.
-- $1 how far to look back in ms
-- Locks: none. Index: timer_pkey.
SELECT greatest(extract(epoch FROM t.at - clock_timestamp()) * 1000, 0)::bigint
  FROM outboxd.timer t WHERE t.at > now() - $1::bigint * interval '1 ms' ORDER BY t.at LIMIT 1
