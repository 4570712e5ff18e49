-- Percentiles of each measure in the last 5 minutes, by subject and origin, from the statistics' histograms: bucket b
-- stands for 2^(b/4) ms.
CREATE OR REPLACE VIEW outboxd._spans AS
WITH histogram AS (
    SELECT s.measure, s.subject, s.origin, s.bucket, sum(s.count) AS n FROM outboxd.statistics_span s
     WHERE s.minute > now() - interval '5 min' GROUP BY 1, 2, 3, 4
), ranked AS (
    SELECT h.measure, h.subject, h.origin, h.bucket,
           sum(h.n) OVER (PARTITION BY h.measure, h.subject, h.origin ORDER BY h.bucket) AS upto,
           sum(h.n) OVER (PARTITION BY h.measure, h.subject, h.origin) AS total
      FROM histogram h
), picked AS (
    SELECT r.measure, r.subject, r.origin, max(r.total)::bigint AS count,
           min(r.bucket) FILTER (WHERE r.upto >= r.total * 0.50) AS b50, min(r.bucket) FILTER (WHERE r.upto >= r.total * 0.95) AS b95,
           min(r.bucket) FILTER (WHERE r.upto >= r.total * 0.99) AS b99
      FROM ranked r GROUP BY 1, 2, 3
)
SELECT p.measure, p.subject, p.origin, p.count, round((2 ^ (p.b50 / 4.0))::numeric, 1) AS p50_ms,
       round((2 ^ (p.b95 / 4.0))::numeric, 1) AS p95_ms, round((2 ^ (p.b99 / 4.0))::numeric, 1) AS p99_ms
  FROM picked p;
