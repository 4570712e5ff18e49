-- What is waiting, working, dead. Counted on the spot while the last snapshot is not large (or is old, because no instance
-- runs); beyond that the snapshot itself, a few seconds old. Each half is gated by a one-time filter.
-- Locks: none. Index: see _count_active().
CREATE OR REPLACE VIEW outboxd._counts AS
WITH snapshot AS MATERIALIZED (
    SELECT c.taken_at, c.is_large AND c.taken_at > now() - greatest(interval '30 s', c.cost * 60) AS serves FROM outboxd.snapshot c
)
SELECT n.topic, n.status, n.count, n.oldest_since, now() AS counted_at
  FROM outboxd._count_active() n
 WHERE NOT (SELECT c.serves FROM snapshot c)
UNION ALL
SELECT n.topic, n.status, n.count, n.oldest_since, (SELECT c.taken_at FROM snapshot c)
  FROM outboxd.snapshot_count n
 WHERE (SELECT c.serves FROM snapshot c);
