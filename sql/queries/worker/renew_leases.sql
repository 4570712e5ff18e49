-- Calls that are still under way keep their rows.
-- The rows are named by the array as well as joined: a join alone may be planned as a scan of all that is live.
-- $1 ids · $2 tokens · $3 lease in ms
-- Locks: the rows (HOT). Index: outbox_pkey.
UPDATE outboxd.outbox o SET lease_until = clock_timestamp() + $3::bigint * interval '1 ms'
  FROM (SELECT u.id, u.token FROM unnest($1::bigint[], $2::int[]) u(id, token) ORDER BY 1) u
 WHERE o.id = ANY ($1::bigint[]) AND o.id = u.id AND o.epoch = u.token AND o.state = 'processing'
