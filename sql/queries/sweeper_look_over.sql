-- What a sweep must know of the active set, in one pass over it: the claims whose lease is over or whose holder is dead, and, in a
-- row of its own that is always there, for how many ms the oldest of what is published waits to be claimed (NULL: nothing does).
-- Only reading: what to do is decided again under the locks, by worker_record_failures and sweeper_republish_overtaken.
-- $1 dead instances · $2 claims at most
-- Locks: none. Index: none for the pass; outbox_pkey, notification_log_pkey, publication_stretch.
WITH pass AS MATERIALIZED (
    SELECT (array_agg(o.id) FILTER (WHERE o.state = 2 AND (o.next_at < now() OR o.instance = ANY ($1::int[]))))[1:$2::int] AS over,
           min(o.next_at) FILTER (WHERE o.state = 1) AS published_at
      FROM outboxd.outbox o WHERE o.state IN (1, 2)
)
SELECT o.id, o.epoch AS token, o.instance, o.route_step, o.channel_attempts, coalesce(o.topic, l.topic) AS topic,
       l.expires_at <= clock_timestamp() AS expired, NULL::bigint AS published_for
  FROM outboxd.outbox o
  LEFT JOIN LATERAL (
       SELECT l.topic, l.expires_at FROM outboxd.notification_log l WHERE o.topic IS NULL AND l.id = o.id OFFSET 0) l ON true
 WHERE o.id = ANY ((SELECT p.over FROM pass p)::bigint[]) AND o.state = 2 AND (o.topic IS NOT NULL OR l.topic IS NOT NULL)
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       (extract(epoch FROM clock_timestamp() - least(p.published_at, s.pushed_at)) * 1000)::bigint
  FROM pass p CROSS JOIN (SELECT min(p.pushed_at) AS pushed_at FROM outboxd.publication p WHERE p.lane IS NOT NULL) s
