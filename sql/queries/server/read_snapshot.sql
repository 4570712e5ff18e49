-- The active set by topic and status as last counted, and how long the oldest row that was ready had then waited to be
-- published. One row without a topic if there was nothing to count; none before the first snapshot.
-- Parameters: none. Locks: none. Index: none: as many rows as there are topics with work.
SELECT n.topic, n.status, n.count AS rows, extract(epoch FROM c.taken_at)::float8 AS taken_at_s,
       coalesce(extract(epoch FROM greatest(c.taken_at - c.ready_since, '0')), 0)::float8 AS unpublished_age_s
  FROM outboxd.snapshot c LEFT JOIN outboxd.snapshot_count n ON true
 WHERE c.taken_at > '-infinity'
