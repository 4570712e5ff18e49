-- How far publishing is behind: over the active set.
CREATE OR REPLACE VIEW outboxd.outbox_lag AS
SELECT count(*) FILTER (WHERE ready) AS ready_unpublished,
       coalesce(max(clock_timestamp() - since) FILTER (WHERE ready), '0') AS oldest_age,
       count(*) FILTER (WHERE NOT ready AND state IN (1, 2) AND next_at > clock_timestamp() - interval '1 minute') AS published_last_minute
  FROM (SELECT o.state, o.next_at, coalesce(o.retry_at, o.next_at) AS since,
               o.state = 0 AND coalesce(o.retry_at, o.next_at) <= clock_timestamp() AND t.paused_at IS NULL AS ready
          FROM outboxd.outbox o LEFT JOIN outboxd.topic t ON t.lane = o.lane) r;

COMMENT ON VIEW outboxd.outbox_lag IS 'Rows that are ready and not yet published, and how long the oldest waits. Paused topics do not count.';
COMMENT ON COLUMN outboxd.outbox_lag.ready_unpublished IS 'Rows ready to be published.';
COMMENT ON COLUMN outboxd.outbox_lag.oldest_age IS 'How long the oldest of them has been ready.';
COMMENT ON COLUMN outboxd.outbox_lag.published_last_minute IS 'Live rows that were published or claimed in the last minute.';
