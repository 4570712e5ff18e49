-- Rows that are ready and not yet published, and since when the first of them. Topics that an operator paused do not
-- count. Whatever came back is ready since `retry_at`; of the fresh ones only the oldest, the one with the lowest id, is
-- looked up in the log. One pass over the active set. Locks: none. Index: notification_log_pkey, one probe.
CREATE OR REPLACE VIEW outboxd._ready AS
SELECT r.ready,
       least(r.due_since, (SELECT greatest(l.created_at, l.send_at) FROM outboxd.notification_log l WHERE l.id = r.first_fresh))
           AS ready_since
  FROM (SELECT count(*) AS ready, min(o.retry_at) AS due_since, min(o.id) FILTER (WHERE o.retry_at IS NULL) AS first_fresh
          FROM outboxd.outbox o
         WHERE o.state = 'ready' AND (o.retry_at IS NULL OR o.retry_at <= now())
           AND o.topic NOT IN (SELECT t.name FROM outboxd.topic t WHERE t.paused_at IS NOT NULL)) r;
