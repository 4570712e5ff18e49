-- What _counts and the statistics say, one row a topic: what waits now, and what was done in the last hour.
-- Locks: none. Index: those of _counts; statistics_topic_pkey, an hour of it.
CREATE OR REPLACE VIEW outboxd._topic_counts AS
WITH active AS (
    SELECT q.topic, coalesce(sum(q.count) FILTER (WHERE q.status = 'PENDING'), 0)::bigint AS pending,
           coalesce(sum(q.count) FILTER (WHERE q.status = 'QUEUED'), 0)::bigint AS queued,
           coalesce(sum(q.count) FILTER (WHERE q.status = 'PROCESSING'), 0)::bigint AS processing,
           coalesce(sum(q.count) FILTER (WHERE q.status = 'FAILED'), 0)::bigint AS dead,
           min(q.oldest_since) FILTER (WHERE q.status IN ('QUEUED', 'PROCESSING')) AS waiting_since
      FROM outboxd._counts q GROUP BY q.topic
), done AS (
    SELECT t.topic, sum(t.sent)::bigint AS sent, sum(t.failed)::bigint AS failed, sum(t.retried)::bigint AS retried
      FROM outboxd.statistics_topic t WHERE t.minute > now() - interval '1 hour' GROUP BY t.topic
)
SELECT topic, coalesce(a.pending, 0) AS pending, coalesce(a.queued, 0) AS queued, coalesce(a.processing, 0) AS processing,
       coalesce(a.dead, 0) AS dead, a.waiting_since, coalesce(d.sent, 0) AS sent, coalesce(d.failed, 0) AS failed,
       coalesce(d.retried, 0) AS retried
  FROM active a FULL JOIN done d USING (topic);
