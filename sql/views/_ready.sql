-- Rows that are ready and not yet published, and since when the first of them. Topics that an operator paused do not
-- count. One pass over the active set.
CREATE OR REPLACE VIEW outboxd._ready AS
SELECT count(*) AS ready, min(coalesce(o.retry_at, o.next_at)) AS ready_since
  FROM outboxd.outbox o
 WHERE o.state = 0 AND coalesce(o.retry_at, o.next_at) <= now()
   AND o.lane NOT IN (SELECT t.lane FROM outboxd.topic t WHERE t.paused_at IS NOT NULL);
