-- The topics with live rows that have neither key nor time, one step down the index each: the relay's full scan begins with it,
-- and finds topics that nobody has seen.
-- Parameters: none. Locks: none. Index: outbox_fresh.
WITH RECURSIVE t AS (
    (SELECT o.topic FROM outboxd.outbox o WHERE o.ordering_key IS NULL AND o.retry_at IS NULL ORDER BY o.topic, o.seq LIMIT 1)
    UNION ALL
    SELECT n.topic FROM t CROSS JOIN LATERAL (
        SELECT o.topic FROM outboxd.outbox o WHERE o.topic > t.topic AND o.ordering_key IS NULL AND o.retry_at IS NULL
         ORDER BY o.topic, o.seq LIMIT 1) n
)
SELECT t.topic FROM t
