-- How far publishing is behind, by the rows that _wait calls lag. Like queue_state: counted on the spot, or with a large
-- backlog as of the last snapshot.
CREATE OR REPLACE VIEW outboxd.outbox_lag AS
WITH lag AS (
    SELECT coalesce(sum(w.count) FILTER (WHERE w.is_lag), 0)::bigint AS ready, min(w.ready_since) FILTER (WHERE w.is_lag) AS ready_since,
           coalesce(min(w.counted_at), now()) AS counted_at
      FROM outboxd._waits w
)
SELECT l.ready AS ready_unpublished,
       greatest(clock_timestamp() - l.ready_since, '0') AS oldest_age,
       -- By the minute: all of this one, and as much of the last as makes up 60 s.
       coalesce((SELECT round(sum(m.published * CASE WHEN m.minute = date_trunc('minute', now()) THEN 1
                                                     ELSE 1 - extract(epoch FROM now() - date_trunc('minute', now())) / 60 END))
                   FROM outboxd.statistics_minute m WHERE m.minute >= date_trunc('minute', now()) - interval '1 min'), 0)::bigint
           AS published_last_minute,
       l.counted_at
  FROM lag l;

COMMENT ON VIEW outboxd.outbox_lag IS
    'Rows that are ready and not yet published, and how long the oldest waits. One row. What waits for '
    'something else does not count: a topic that is paused or has no route, a channel or origin that is paused, open, half-open, asked to wait or '
    'is at its limit, a time. See outboxd.waiting.';
COMMENT ON COLUMN outboxd.outbox_lag.ready_unpublished IS 'Rows ready to be published.';
COMMENT ON COLUMN outboxd.outbox_lag.oldest_age IS 'How long the oldest of them has been ready; 0 if there is none.';
COMMENT ON COLUMN outboxd.outbox_lag.published_last_minute IS
    'Messages pushed to the queue in the last 60 s, copies included, to within a few seconds.';
COMMENT ON COLUMN outboxd.outbox_lag.counted_at IS
    'When this was counted: now, or, with more than 3,000 rows or 500 topics, when an instance last did, a few seconds ago.';
