-- What a sweep must know of the active set, in one pass over it: the claims whose lease is over or whose holder is dead, and, in a
-- row of its own that is always there, for how many ms the oldest of what is published waits to be claimed (NULL: nothing does).
-- Only reading: what to do is decided again under the locks, by worker_record_failures and sweeper_republish.
-- $1 dead instances · $2 claims at most
-- Locks: none. Index: none for the pass; outbox_pkey, notification_log_pkey.
WITH pass AS MATERIALIZED (
    SELECT (array_agg(o.id) FILTER (WHERE o.state = 'processing'
                                      AND (o.lease_until < now() OR o.instance = ANY ($1::int[]))))[1:$2::int] AS over,
           min(o.published_at) FILTER (WHERE o.state = 'published') AS published_at
      FROM outboxd.outbox o WHERE o.state IN ('published', 'processing')
)
SELECT o.id, o.epoch AS token, o.instance, o.route_step, o.channel_attempts, o.topic, l.created_at,
       l.expires_at <= clock_timestamp() AS expired, NULL::bigint AS published_for
  FROM outboxd.outbox o
 CROSS JOIN LATERAL (SELECT l.created_at, l.expires_at FROM outboxd.notification_log l WHERE l.id = o.id OFFSET 0) l
 WHERE o.id = ANY ((SELECT p.over FROM pass p)::bigint[]) AND o.state = 'processing'
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, (extract(epoch FROM clock_timestamp() - p.published_at) * 1000)::bigint FROM pass p
