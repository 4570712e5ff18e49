-- The work at this moment and over the last hour: what waits by status and topic, how far publishing is behind, counts
-- and latencies by the minute, the channels, bulk actions that run. All from statistics and the snapshot.
-- Parameters: none. Locks: none. Index: the primary keys of the statistics; bulk_action_open.
WITH states AS MATERIALIZED (
    SELECT q.topic, q.status, q.count, extract(epoch FROM q.oldest_age)::float8 AS oldest_s, q.counted_at FROM outboxd.queue_state q
), spans AS (
    SELECT s.minute, s.bucket, sum(s.count) AS n FROM outboxd.statistics_span s
     WHERE s.minute > now() - interval '1 hour' AND s.measure = 'notify' GROUP BY 1, 2
), ranked AS (
    SELECT s.minute, s.bucket, sum(s.n) OVER (PARTITION BY s.minute ORDER BY s.bucket) AS upto,
           sum(s.n) OVER (PARTITION BY s.minute) AS total FROM spans s
), latency AS (
    SELECT r.minute, (2 ^ (min(r.bucket) FILTER (WHERE r.upto >= r.total * 0.50) / 4.0))::float8 AS p50_ms,
           (2 ^ (min(r.bucket) FILTER (WHERE r.upto >= r.total * 0.99) / 4.0))::float8 AS p99_ms
      FROM ranked r GROUP BY 1
)
SELECT json_build_object(
    'minute', date_trunc('minute', now()),
    'statuses', (SELECT json_object_agg(s.status, json_build_object('count', s.count, 'oldest_s', s.oldest_s)) FROM (
        SELECT x.status, sum(x.count)::bigint AS count, max(x.oldest_s) AS oldest_s FROM states x GROUP BY 1) s),
    'topics', (SELECT json_agg(t ORDER BY t.waiting DESC, t.topic) FROM (
        SELECT x.topic, sum(x.count) FILTER (WHERE x.status IN ('QUEUED', 'PROCESSING'))::bigint AS waiting,
               max(x.oldest_s) FILTER (WHERE x.status IN ('QUEUED', 'PROCESSING')) AS oldest_s,
               (SELECT p.paused_at FROM outboxd.topic p WHERE p.name = x.topic) AS paused_at
          FROM states x WHERE x.status IN ('QUEUED', 'PROCESSING') GROUP BY x.topic
         ORDER BY 2 DESC, 1 LIMIT 6) t),
    'lag', (SELECT json_build_object('ready', l.ready_unpublished, 'oldest_s', extract(epoch FROM l.oldest_age)::float8,
                                     'published_last_minute', l.published_last_minute) FROM outboxd.outbox_lag l),
    'minutes', (SELECT json_agg(t ORDER BY t.minute) FROM outboxd.throughput t),
    'latency', (SELECT json_agg(l ORDER BY l.minute) FROM latency l),
    'channels', (SELECT json_agg(c ORDER BY c.circuit <> 'closed' DESC, c.paused DESC, c.origin IS NOT NULL, c.channel, c.origin) FROM (
        SELECT h.channel, h.origin, h.circuit, h.paused, h.held_until, h.held_because, h.calls, h.success_percent, h.p95_ms,
               h.last_error, h.last_error_at FROM outboxd.channel_health h
         ORDER BY h.circuit <> 'closed' DESC, h.paused DESC, h.origin IS NOT NULL, h.channel, h.origin LIMIT 12) c),
    'instances', (SELECT count(*) FROM outboxd.workers),
    'bulk', (SELECT json_agg(b ORDER BY b.id) FROM (
        SELECT a.id, a.action, a.filter, a.actor, a.token, a.state, a.matched, a.done, a.percent FROM outboxd.bulk_actions a
         WHERE a.ended_at IS NULL ORDER BY a.id LIMIT 5) b)) AS page
