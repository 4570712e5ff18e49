-- Attempts that failed or whose outcome is unknown. Only under the current token: the row waits for its next attempt
-- (2 → 0 with a timer, perhaps on the next channel) or ends (FAILED; CANCELED if a cancel came in meanwhile). Under an
-- old token nothing changes but the attempt is noted as late. A sweep passes $12 = true: then the lease must
-- still be over, or its holder dead, when the row is locked.
-- Interleavings: the row is locked before its flags are read, so cancel() either set the flag before or waits and finds
-- the row in its new state; a late success deletes the row and we find nothing; a renewed lease is seen by the sweep.
-- $1 ids · $2 tokens · $3 outcomes ('failed'|'unknown') · $4 errors · $5 http statuses · $6 channel names · $7 durations in ms
-- $8 responses · $9 waits in ms (NULL: give up) · $10 next channel positions (NULL: the same) · $11 instance
-- $12 sweep only · $13 dead instances
-- Locks: outbox rows, then log rows, by id. Index: outbox_pkey, notification_log_pkey.
WITH outcome AS (
    SELECT * FROM unnest($1::bigint[], $2::int[], $3::text[], $4::text[], $5::smallint[], $6::text[], $7::int[], $8::text[],
                         $9::bigint[], $10::smallint[])
           u(id, token, outcome, error, http_status, channel, duration_ms, response, wait, next_channel)
), held AS MATERIALIZED (
    SELECT o.id, o.epoch, o.attempts, o.cancel, o.live_key
      FROM outboxd.outbox o JOIN outcome u ON o.id = u.id
     WHERE o.state = 2 AND o.epoch = u.token
       AND (NOT $12::bool OR o.next_at < clock_timestamp() OR o.instance = ANY ($13::int[]))
     ORDER BY o.id FOR UPDATE OF o
), waiting AS (
    UPDATE outboxd.outbox o
       SET state = 0, instance = NULL, retry_at = clock_timestamp() + u.wait * interval '1 ms',
           channel = coalesce(u.next_channel, o.channel),
           channel_attempts = CASE WHEN u.next_channel IS NULL THEN o.channel_attempts ELSE 0 END
      FROM held h JOIN outcome u ON u.id = h.id
     WHERE o.id = h.id AND u.wait IS NOT NULL AND NOT h.cancel
    RETURNING o.id
), ended AS (
    DELETE FROM outboxd.outbox o USING held h JOIN outcome u ON u.id = h.id
     WHERE o.id = h.id AND (u.wait IS NULL OR h.cancel)
    RETURNING o.id
), logged AS (
    UPDATE outboxd.notification_log l
       SET status = CASE WHEN h.cancel THEN 'CANCELED' ELSE 'FAILED' END::outboxd.status, finished_at = c.at,
           failed_at = CASE WHEN NOT h.cancel THEN c.at END,
           epoch = h.epoch, attempts = h.attempts, error = u.error, http_status = u.http_status, channel = u.channel
      FROM held h JOIN outcome u ON u.id = h.id CROSS JOIN (SELECT clock_timestamp() AS at) c
     WHERE l.id = h.id AND (u.wait IS NULL OR h.cancel) AND l.status = 'QUEUED'
    RETURNING l.id, l.status
), noted AS (
    INSERT INTO outboxd.attempt (notification_id, token, number, started_at, duration_ms, instance, http_status, outcome,
                                 channel, error, response)
    SELECT u.id, u.token, h.attempts, clock_timestamp() - u.duration_ms * interval '1 ms', u.duration_ms, $11::int,
           u.http_status, CASE WHEN h.id IS NULL THEN 'late failure' ELSE u.outcome END, u.channel, u.error, u.response
      FROM outcome u LEFT JOIN held h ON h.id = u.id
     WHERE h.id IS NOT NULL OR NOT $12::bool
)
SELECT u.id, h.id IS NOT NULL AS applied, e.id IS NOT NULL AS ended, l.status::text AS status,
       CASE WHEN e.id IS NOT NULL THEN h.live_key END AS released_key
  FROM outcome u LEFT JOIN held h ON h.id = u.id LEFT JOIN ended e ON e.id = u.id LEFT JOIN logged l ON l.id = u.id
