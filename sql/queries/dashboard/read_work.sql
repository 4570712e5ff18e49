-- The work at this moment and over the last hour: what waits by status and topic, how far publishing is behind, counts
-- and latencies by the minute, the worst channels, bulk actions that run. All from statistics and the snapshot.
-- Parameters: none. Locks: none. Index: the primary keys of the statistics; bulk_action_open.
WITH topics AS MATERIALIZED (
    SELECT t.topic, t.pending, t.queued, t.processing, t.dead, t.waiting_since FROM outboxd._topics t
), channels AS MATERIALIZED (
    SELECT h.channel, h.origin, h.circuit, h.paused, h.held_until, h.held_because, h.calls, h.success_percent, h.p95_ms,
           h.last_error, h.last_error_at, coalesce(h.waiting, 0) AS waiting,
           CASE WHEN h.circuit <> 'closed' THEN CASE WHEN h.origin IS NULL THEN 0 ELSE 1 END WHEN h.paused THEN 2 WHEN h.success_percent < 90 THEN 3
                WHEN h.origin IS NULL THEN 4 ELSE 5 END AS rank
      FROM outboxd.channel_health h WHERE h.origin IS DISTINCT FROM '(other)'
), ranked AS (
    SELECT s.minute, s.bucket, sum(s.count) OVER (PARTITION BY s.minute ORDER BY s.bucket) AS upto,
           sum(s.count) OVER (PARTITION BY s.minute) AS total
      FROM generate_series(0, 59) m(ago) JOIN outboxd.statistics_span s
        ON s.minute = date_trunc('minute', now()) - m.ago * interval '1 min' AND s.measure = 'notify' AND s.subject = '' AND s.origin = ''
), latency AS (
    SELECT r.minute, (2 ^ (min(r.bucket) FILTER (WHERE r.upto >= r.total * 0.50) / 4.0))::float8 AS p50_ms,
           (2 ^ (min(r.bucket) FILTER (WHERE r.upto >= r.total * 0.99) / 4.0))::float8 AS p99_ms
      FROM ranked r GROUP BY 1
)
SELECT json_build_object(
    'minute', date_trunc('minute', now()),
    'total', (SELECT json_build_object(
        'pending', coalesce(sum(t.pending), 0), 'queued', coalesce(sum(t.queued), 0), 'processing', coalesce(sum(t.processing), 0),
        'dead', coalesce(sum(t.dead), 0), 'topics', count(t.waiting_since),
        'oldest_s', greatest(extract(epoch FROM clock_timestamp() - min(t.waiting_since))::float8, CASE WHEN count(t.waiting_since) > 0 THEN 0 END)) FROM topics t),
    'topics', (SELECT json_agg(t) FROM (
        SELECT x.topic, x.queued + x.processing AS waiting,
               greatest(extract(epoch FROM clock_timestamp() - x.waiting_since)::float8, CASE WHEN x.waiting_since IS NOT NULL THEN 0 END) AS oldest_s,
               (SELECT p.paused_at FROM outboxd.topic p WHERE p.name = x.topic) AS paused_at
          FROM topics x WHERE x.queued + x.processing > 0
         ORDER BY 2 DESC, 1 LIMIT 6) t),
    'lag', (SELECT json_build_object('ready', l.ready_unpublished, 'oldest_s', extract(epoch FROM l.oldest_age)::float8,
                                     'published_last_minute', l.published_last_minute) FROM outboxd.outbox_lag l),
    'minutes', (SELECT json_agg(t ORDER BY t.minute) FROM outboxd.throughput t),
    'latency', (SELECT json_agg(l ORDER BY l.minute) FROM latency l),
    'channels', (SELECT json_agg(c) FROM (SELECT h.* FROM channels h ORDER BY h.rank, h.waiting DESC, h.channel, h.origin NULLS FIRST LIMIT 12) c),
    'channels_more', (SELECT greatest(count(*) - 12, 0) FROM channels h),
    'instances', (SELECT count(*) FROM outboxd.workers),
    'bulk', (SELECT json_agg(b ORDER BY b.id) FROM (
        SELECT a.id, a.action, a.filter, a.actor, a.token, a.state, a.matched, a.done, a.percent FROM outboxd.bulk_actions a
         WHERE a.ended_at IS NULL ORDER BY a.id LIMIT 5) b)) AS page
