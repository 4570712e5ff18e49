-- What waits and why, in exact counts, with the end that is expected of what waits at a limit.
-- Locks: none. Index: those of _waits.
CREATE OR REPLACE VIEW outboxd.waiting AS
SELECT w.reason, w.topic, w.channel, sum(w.count)::bigint AS count, greatest(clock_timestamp() - min(w.waits_since), '0') AS oldest,
       min(w.limited_by) AS limited_by, max(w.ends_at) AS expected_end, min(w.counted_at) AS counted_at
  FROM outboxd._waits w GROUP BY w.reason, w.topic, w.channel;

COMMENT ON VIEW outboxd.waiting IS
    'What waits and why: exact counts by reason, topic and channel, of all that has not ended. outboxd.stuck has the rows that are past '
    'their time, outboxd.why(id) says it of one.';
COMMENT ON COLUMN outboxd.waiting.reason IS
    'PENDING: not due yet, waiting for a producer, never released (10 s). QUEUED: topic paused, no route, channel paused, circuit open, '
    'provider asked to wait, waiting for retry, at its limit, waiting behind key, waiting for the relay, never published (10 s), in the queue, '
    'published without progress (1 min). PROCESSING: being sent, lease expired (5 s). Whatever it was: came with a copy (health, origin).';
COMMENT ON COLUMN outboxd.waiting.topic IS 'What it is about.';
COMMENT ON COLUMN outboxd.waiting.channel IS 'The channel that it waits for; NULL: it is PENDING, or no route leads its topic anywhere.';
COMMENT ON COLUMN outboxd.waiting.count IS 'How many.';
COMMENT ON COLUMN outboxd.waiting.oldest IS
    'How long the oldest waits since it was to be sent; 0 if it is not due yet. As in outboxd.queue_state.';
COMMENT ON COLUMN outboxd.waiting.limited_by IS
    'Of what is at its limit: rate_limit, max_in_flight or max_in_flight_per_origin of the channel; share of topic: of the calls of the '
    'instances, some of which are always left to other topics; concurrency: worker.concurrency of the instances. NULL: it was put back for '
    'its turn, and nobody has reported a limit lately.';
COMMENT ON COLUMN outboxd.waiting.expected_end IS
    'When all that is at the limit of this channel, or of this topic''s share, will have started, at the rate that the instances report; '
    'NULL: nobody knows, or not within 30 days.';
COMMENT ON COLUMN outboxd.waiting.counted_at IS
    'When this was counted: now, or, with more than 3,000 rows or 500 topics, when an instance last did, a few seconds ago.';
