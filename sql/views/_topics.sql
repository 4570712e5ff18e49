-- The same, from the snapshot where that is large: a page over 10,000 topics reads as many rows and counts nothing. Each
-- half is gated by a one-time filter.
-- Locks: none. Index: see _topic_counts.
CREATE OR REPLACE VIEW outboxd._topics AS
WITH snapshot AS MATERIALIZED (
    SELECT c.is_large AND c.taken_at > now() - greatest(interval '30 s', c.cost * 60) AS serves FROM outboxd.snapshot c
)
SELECT n.* FROM outboxd._topic_counts n WHERE NOT (SELECT c.serves FROM snapshot c)
UNION ALL
SELECT n.* FROM outboxd.snapshot_topic n WHERE (SELECT c.serves FROM snapshot c);
