-- What a sweep must know of the live rows, in one pass over some pages of them: the claims whose lease is over or whose
-- holder is dead, and, in a row of its own that is always there, for how many ms the oldest of what is published waits
-- to be claimed (NULL: nothing does) and how many pages there are. Pages and not ids: so the work is bounded, dead rows
-- included. A row that moves to a page that was passed is found by the next scan. Only reading: what to do is decided
-- again under the locks, by worker/record_failures and relay/republish.
-- $1 dead instances · $2 whether leases that are over count · $3 claims at most · $4 first page · $5 pages at most
-- Locks: none. Index: none for the pass (a scan of a range of ctids); outbox_pkey, notification_log_pkey.
WITH pass AS MATERIALIZED (
    SELECT (array_agg(o.id) FILTER (WHERE o.state = 'processing'
                AND (($2::bool AND o.lease_until < now()) OR o.instance = ANY ($1::int[]))))[1:$3::int] AS over,
           min(o.published_at) FILTER (WHERE o.state = 'published') AS published_at
      FROM outboxd.outbox o
     WHERE o.ctid >= format('(%s,0)', $4::bigint)::tid AND o.ctid < format('(%s,0)', $4::bigint + $5::bigint)::tid
       AND o.state IN ('published', 'processing')
)
SELECT o.id, o.epoch AS token, o.instance, o.route_step, o.channel_attempts, o.topic, l.created_at,
       l.expires_at <= clock_timestamp() AS expired, NULL::bigint AS published_for, NULL::bigint AS pages
  FROM outboxd.outbox o
  -- Without a record (somebody deleted it) it cannot be read and is given up.
  LEFT JOIN LATERAL (SELECT l.created_at, l.expires_at FROM outboxd.notification_log l WHERE l.id = o.id OFFSET 0) l ON true
 WHERE o.id = ANY ((SELECT p.over FROM pass p)::bigint[]) AND o.state = 'processing'
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, (extract(epoch FROM clock_timestamp() - p.published_at) * 1000)::bigint,
       pg_relation_size('outboxd.outbox') / current_setting('block_size')::bigint
  FROM pass p
