-- Instances that signed off or fell silent more than $2 ago. The one that saw the most of each kind of queue stays: its
-- counter tells whether the queue lost data while nobody ran. Whoever has just started deletes none: what an instance
-- had in its process is published again because of its row, by a sweep that comes first.
-- Interleavings: a former owner finds no lease; an instance that was only asleep finds its row gone at its next
-- heartbeat and registers anew.
-- $1 owner · $2 kept for, in ms
-- Locks: the rows deleted; the lease FOR KEY SHARE. Index: none, the table is small.
WITH lease AS MATERIALIZED (SELECT WHERE outboxd._owns_lease('retention', $1::int)), gone AS (
    DELETE FROM outboxd.instance i
     WHERE coalesce(i.stopped_at, i.heartbeat_at) < clock_timestamp() - $2::bigint * interval '1 ms'
       AND i.id <> (SELECT o.id FROM outboxd.instance o WHERE o.queue_kind = i.queue_kind ORDER BY o.queue_counter DESC, o.id DESC LIMIT 1)
       AND EXISTS (SELECT FROM lease)
       AND (SELECT o.started_at FROM outboxd.instance o WHERE o.id = $1::int) < clock_timestamp() - 2 * i.ttl - interval '10 min'
    RETURNING i.id
)
SELECT (SELECT true FROM lease) AS is_caught_up, (SELECT count(*) FROM gone) AS deleted
