-- Rows that are ready and not yet published, and since when the first of them. Topics that an operator paused do not
-- count. Up to the last stretch of a lane, what has no timer is published. One pass over the active set.
CREATE OR REPLACE VIEW outboxd._ready AS
SELECT count(*) AS ready, min(coalesce(o.retry_at, o.next_at)) AS ready_since
  FROM outboxd.outbox o
  LEFT JOIN (SELECT p.lane, max(p.seq_to) AS seq_to FROM outboxd.publication p WHERE p.lane IS NOT NULL GROUP BY p.lane) s
         ON s.lane = o.lane
 WHERE o.state = 0 AND coalesce(o.retry_at, o.next_at) <= now()
   AND (o.retry_at IS NOT NULL OR s.seq_to IS NULL OR o.seq > s.seq_to)
   AND o.lane NOT IN (SELECT t.lane FROM outboxd.topic t WHERE t.paused_at IS NOT NULL);
