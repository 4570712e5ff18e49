-- What is waiting, working, dead, as _counts has it.
CREATE OR REPLACE VIEW outboxd.queue_state AS
SELECT n.topic, n.status, n.count, greatest(clock_timestamp() - n.oldest_since, '0') AS oldest_age, n.counted_at
  FROM outboxd._counts n;

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
    'When this was counted: now, or, with more than 3,000 rows or 500 topics, when an instance last did, a few seconds ago.';
