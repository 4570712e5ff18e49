-- What waits, by reason, topic and channel. Counted on the spot, or with a large backlog as of the last snapshot: like
-- queue_state.
-- Locks: none. Index: those of _count_waiting().
CREATE OR REPLACE VIEW outboxd._waits AS
WITH snapshot AS MATERIALIZED (
    SELECT c.taken_at, c.is_large AND c.taken_at > now() - greatest(interval '30 s', c.cost * 60) AS serves FROM outboxd.snapshot c
)
SELECT n.reason, n.topic, n.channel, n.limited_by, n.per_second, n.is_lag, n.count, n.waits_since, n.ready_since, now() AS counted_at
  FROM outboxd._count_waiting() n
 WHERE NOT (SELECT c.serves FROM snapshot c)
UNION ALL
SELECT n.reason, n.topic, n.channel, n.limited_by, n.per_second, n.is_lag, n.count, n.waits_since, n.ready_since, (SELECT c.taken_at FROM snapshot c)
  FROM outboxd.snapshot_waiting n
 WHERE (SELECT c.serves FROM snapshot c);
