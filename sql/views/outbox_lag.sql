-- How far publishing is behind. Like queue_state: counted on the spot, or with a large backlog as of the last snapshot.
CREATE OR REPLACE VIEW outboxd.outbox_lag AS
WITH snapshot AS MATERIALIZED (
    SELECT c.taken_at, c.ready, c.ready_since,
           c.is_large AND c.taken_at > now() - greatest(interval '30 s', c.cost * 60) AS serves FROM outboxd.snapshot c
), lag AS (
    SELECT r.ready, r.ready_since, now() AS counted_at FROM outboxd._ready r WHERE NOT (SELECT c.serves FROM snapshot c)
    UNION ALL
    SELECT c.ready, c.ready_since, c.taken_at FROM snapshot c WHERE c.serves
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
    'Rows that are ready and not yet published, and how long the oldest waits. One row. What is held on purpose does not '
    'count: a topic that is paused or has no route, a channel that is paused, open, half-open or asked to wait.';
COMMENT ON COLUMN outboxd.outbox_lag.ready_unpublished IS 'Rows ready to be published.';
COMMENT ON COLUMN outboxd.outbox_lag.oldest_age IS 'How long the oldest of them has been ready; 0 if there is none.';
COMMENT ON COLUMN outboxd.outbox_lag.published_last_minute IS
    'Messages pushed to the queue in the last 60 s, copies included, to within a few seconds.';
COMMENT ON COLUMN outboxd.outbox_lag.counted_at IS
    'When this was counted: now, or, with more than 20,000 rows or 500 topics, when an instance last did, a few seconds ago.';
