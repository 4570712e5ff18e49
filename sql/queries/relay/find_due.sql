-- The topics with rows that came back or late (retries, heads of keys, recalled and released rows), and in how many ms
-- the first of each is due: one step down the index each.
-- Parameters: none. Locks: none. Index: outbox_due.
WITH RECURSIVE t AS (
    (SELECT o.topic, o.retry_at FROM outboxd.outbox o WHERE o.retry_at IS NOT NULL ORDER BY o.topic, o.retry_at LIMIT 1)
    UNION ALL
    SELECT n.topic, n.retry_at FROM t CROSS JOIN LATERAL (
        SELECT o.topic, o.retry_at FROM outboxd.outbox o WHERE o.topic > t.topic AND o.retry_at IS NOT NULL
         ORDER BY o.topic, o.retry_at LIMIT 1) n
)
SELECT t.topic, (extract(epoch FROM greatest(least(t.retry_at, now() + interval '100 years'), now()) - now()) * 1000)::bigint AS due_in_ms FROM t
