-- The live work by topic and status, and since when the oldest row that is ready waits to be published. Paused topics
-- do not count as late. Over the active set only, counted lane by lane before a topic is looked up.
-- Parameters: none. Locks: none. Index: outbox_lane, topic_pkey.
SELECT coalesce(t.name, '') AS topic, g.status, sum(g.rows)::bigint AS rows,
       extract(epoch FROM clock_timestamp() - min(g.ready_since) FILTER (WHERE t.paused_at IS NULL))::float8 AS unpublished_age_s
  FROM (SELECT o.lane, CASE WHEN o.state = 2 THEN 'PROCESSING' ELSE 'QUEUED' END AS status, count(*) AS rows,
               min(coalesce(o.retry_at, o.next_at)) FILTER (
                   WHERE o.state = 0 AND coalesce(o.retry_at, o.next_at) <= clock_timestamp()) AS ready_since
          FROM outboxd.outbox o GROUP BY 1, 2) g
  LEFT JOIN outboxd.topic t ON t.lane = g.lane
 GROUP BY 1, 2
