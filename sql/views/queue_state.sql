-- What is waiting, working, dead. Counted on the spot while the last snapshot saw up to 20,000 rows (or is old, because
-- no instance runs); beyond that the snapshot itself, a few seconds old. Each half is gated by a one-time filter.
CREATE OR REPLACE VIEW outboxd.queue_state AS
WITH snapshot AS MATERIALIZED (
    SELECT c.taken_at, c.rows > 20000 AND c.taken_at > now() - greatest(interval '30 s', c.cost * 60) AS serves FROM outboxd.snapshot c
)
SELECT n.topic, n.status, n.count, greatest(clock_timestamp() - n.oldest_since, '0') AS oldest_age, now() AS counted_at
  FROM outboxd._count_active() n
 WHERE NOT (SELECT c.serves FROM snapshot c)
UNION ALL
SELECT n.topic, n.status, n.count, greatest(clock_timestamp() - n.oldest_since, '0'), (SELECT c.taken_at FROM snapshot c)
  FROM outboxd.snapshot_count n
 WHERE (SELECT c.serves FROM snapshot c);

COMMENT ON VIEW outboxd.queue_state IS
    'What is waiting, working, dead: per topic and status how many, and how old the oldest. SENT and CANCELED are '
    'history: see outboxd.throughput.';
COMMENT ON COLUMN outboxd.queue_state.topic IS 'What it is about.';
COMMENT ON COLUMN outboxd.queue_state.status IS
    'PENDING (not yet due), QUEUED (waiting), PROCESSING (a worker is calling), FAILED (dead letter).';
COMMENT ON COLUMN outboxd.queue_state.count IS 'How many rows.';
COMMENT ON COLUMN outboxd.queue_state.oldest_age IS
    'How long the oldest is late (PENDING), on its way since it was to be sent (QUEUED, PROCESSING), or dead (FAILED). '
    'The oldest on its way is that which was queued first, or has the lowest id; one that an operator queued again may be older.';
COMMENT ON COLUMN outboxd.queue_state.counted_at IS
    'When this was counted: now, or, with more than 20,000 rows, when an instance last did, a few seconds ago.';
