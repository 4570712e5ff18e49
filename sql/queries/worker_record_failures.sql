-- Attempts that failed or whose outcome is unknown. Only under the current token: the row waits for its next attempt
-- (2 → 0 with a timer, perhaps on the next channel) or ends (FAILED; CANCELED if a cancel came in meanwhile), and a letter
-- that it carried is filed. Under an old token nothing changes but the attempt is noted as late. A sweep passes $12 = true: then the lease must
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
           route_step = coalesce(u.next_channel, o.route_step),
           channel_attempts = CASE WHEN u.next_channel IS NULL THEN o.channel_attempts ELSE 0 END
      FROM held h JOIN outcome u ON u.id = h.id
     WHERE o.id = h.id AND u.wait IS NOT NULL AND NOT h.cancel
    RETURNING o.id, o.retry_at
), timed AS (
    INSERT INTO outboxd.timer (at, id) SELECT w.retry_at, w.id FROM waiting w
), ended AS (
    DELETE FROM outboxd.outbox o USING held h JOIN outcome u ON u.id = h.id
     WHERE o.id = h.id AND (u.wait IS NULL OR h.cancel)
    RETURNING o.id, o.epoch, o.attempts, o.created_at, o.send_at, o.topic, o.recipient, o.payload,
              u.error, u.http_status, u.channel, clock_timestamp() AS at,
              CASE WHEN h.cancel THEN 'CANCELED' ELSE 'FAILED' END::outboxd.status AS status
), filed AS (
    INSERT INTO outboxd.notification_log
           (id, created_at, send_at, finished_at, failed_at, status, epoch, attempts, http_status, topic, recipient, payload, channel, error)
    OVERRIDING SYSTEM VALUE
    SELECT e.id, e.created_at, e.send_at, e.at, CASE WHEN e.status = 'FAILED' THEN e.at END, e.status, e.epoch, e.attempts, e.http_status,
           e.topic, e.recipient, e.payload, e.channel, e.error
      FROM ended e WHERE e.topic IS NOT NULL
), logged AS (
    UPDATE outboxd.notification_log l
       SET status = e.status, finished_at = e.at, failed_at = CASE WHEN e.status = 'FAILED' THEN e.at END,
           epoch = e.epoch, attempts = e.attempts, error = e.error, http_status = e.http_status, channel = e.channel
      FROM (SELECT e.*, f.found_at FROM ended e CROSS JOIN LATERAL (
                   SELECT f.ctid AS found_at FROM outboxd.notification_log f WHERE e.topic IS NULL AND f.id = e.id OFFSET 0) f) e
     WHERE l.ctid = e.found_at AND l.status = 'QUEUED'
), noted AS (
    INSERT INTO outboxd.attempt (notification_id, token, number, started_at, duration_ms, instance, http_status, outcome,
                                 channel, error, response)
    SELECT u.id, u.token, h.attempts, clock_timestamp() - u.duration_ms * interval '1 ms', u.duration_ms, $11::int,
           u.http_status, CASE WHEN h.id IS NULL THEN 'late failure' ELSE u.outcome END, u.channel, u.error, u.response
      FROM outcome u LEFT JOIN held h ON h.id = u.id
     WHERE h.id IS NOT NULL OR NOT $12::bool
)
SELECT u.id, h.id IS NOT NULL AS applied, e.id IS NOT NULL AS ended, e.status::text AS status,
       CASE WHEN e.id IS NOT NULL THEN h.live_key END AS released_key
  FROM outcome u LEFT JOIN held h ON h.id = u.id LEFT JOIN ended e ON e.id = u.id
