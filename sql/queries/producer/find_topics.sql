-- The topics with PENDING rows and the first of each: one step down the index per topic, however many rows it has.
-- A time that no program can represent, which the table forbids, is told as the nearest one that can be.
-- `first_at` and `first_id` are where a release has to begin: what is before them in the index is dead.
-- $1 after this topic, in the order of names · $2 topics at most
-- Locks: none. Index: notification_log_due.
WITH RECURSIVE found AS (
    (SELECT l.topic, l.due_at, l.id FROM outboxd.notification_log l
      WHERE l.due_at IS NOT NULL AND l.topic > $1::text ORDER BY l.topic, l.due_at, l.id LIMIT 1)
    UNION ALL
    SELECT n.topic, n.due_at, n.id
      FROM found f CROSS JOIN LATERAL (
           SELECT l.topic, l.due_at, l.id FROM outboxd.notification_log l
            WHERE l.due_at IS NOT NULL AND l.topic > f.topic ORDER BY l.topic, l.due_at, l.id LIMIT 1) n
)
SELECT f.topic, d.at AS first_at, f.id AS first_id, greatest(extract(epoch FROM d.at - clock_timestamp()) * 1000, 0)::bigint AS due_in_ms
  FROM found f CROSS JOIN LATERAL (SELECT least(greatest(f.due_at, '0001-01-01+00'), '9999-12-31+00') AS at) d LIMIT $2::int
