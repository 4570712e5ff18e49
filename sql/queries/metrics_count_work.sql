-- The live work by topic and status, and since when the oldest row that is ready waits to be published. Paused topics
-- do not count as late. Over the active set only.
-- Parameters: none. Locks: none. Index: outbox_lane.
SELECT coalesce(t.name, '') AS topic, CASE WHEN o.state = 2 THEN 'PROCESSING' ELSE 'QUEUED' END AS status, count(*) AS rows,
       extract(epoch FROM clock_timestamp() - min(coalesce(o.retry_at, o.next_at)) FILTER (
           WHERE o.state = 0 AND coalesce(o.retry_at, o.next_at) <= clock_timestamp() AND t.paused_at IS NULL))::float8
           AS unpublished_age_s
  FROM outboxd.outbox o LEFT JOIN outboxd.topic t ON t.lane = o.lane
 GROUP BY 1, 2
