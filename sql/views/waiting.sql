-- What waits and why, in exact counts. The end that is expected of a channel's line is that of all that waits for its
-- limit, whatever the topic: a line is worked off at the rate of its channel.
-- Locks: none. Index: those of _waits.
CREATE OR REPLACE VIEW outboxd.waiting AS
WITH waits AS MATERIALIZED (
    SELECT w.* FROM outboxd._waits w
), line AS (
    SELECT w.channel, CASE WHEN sum(w.count) < max(w.per_second) * 2592000 THEN now() + sum(w.count) / max(w.per_second) * interval '1 s' END AS ends_at
      FROM waits w WHERE w.reason = 'at its limit' GROUP BY 1
)
SELECT w.reason, w.topic, w.channel, sum(w.count)::bigint AS count, greatest(clock_timestamp() - min(w.waits_since), '0') AS oldest,
       min(w.limited_by) AS limited_by, CASE WHEN w.reason = 'at its limit' THEN min(l.ends_at) END AS expected_end,
       min(w.counted_at) AS counted_at
  FROM waits w LEFT JOIN line l ON l.channel = w.channel
 GROUP BY w.reason, w.topic, w.channel;

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
    'Of what is at its limit: rate_limit, max_in_flight or max_in_flight_per_origin of the channel, or concurrency: worker.concurrency of '
    'the instances. NULL: it was put back for its turn, and nobody has reported the limit lately.';
COMMENT ON COLUMN outboxd.waiting.expected_end IS
    'When all that is at the limit of this channel will have started, at the rate that the instances report; NULL: nobody knows, or not within 30 days.';
COMMENT ON COLUMN outboxd.waiting.counted_at IS
    'When this was counted: now, or, with more than 20,000 rows or 500 topics, when an instance last did, a few seconds ago.';
