-- Attempts that failed or whose outcome is unknown. Only under the current token: the row waits for its next attempt
-- (processing → ready with a time, perhaps on the next channel) or ends (FAILED; CANCELED if a cancel came in
-- meanwhile). Under an old token nothing changes but the attempt is noted as late. A sweep passes $12 = true: then the
-- lease must still be over, or its holder dead, when the row is locked.
-- Interleavings: the row is locked before its flags are read, so cancel() either set the flag before or waits and finds
-- the row in its new state; a late success deletes the row and we find nothing; a renewed lease is seen by the sweep.
-- The rows are named by the array as well as joined: a join alone may be planned as a scan of all that is live.
-- $1 ids · $2 tokens · $3 outcomes ('failed'|'unknown') · $4 errors · $5 http statuses · $6 channel names ·
-- $7 durations in ms · $8 responses · $9 waits in ms (NULL: give up) · $10 next route steps (NULL: the same) ·
-- $11 instance · $12 sweep only · $13 dead instances · $14 created_at ·
-- $15 the origin that a probe went to, and its row waits for ('': the channel as a whole; NULL: no probe): then no attempt
-- is counted, and the one noted has no number · $16 the provider's ids
-- Locks: outbox rows, then log rows, by id. Index: outbox_pkey, notification_log_pkey.
WITH outcome AS MATERIALIZED (
    SELECT u.*, EXISTS (SELECT FROM outboxd.notification_log l WHERE l.id = u.id AND l.created_at = u.created_at) AS is_ours
      FROM unnest($1::bigint[], $2::int[], $3::text[], $4::text[], $5::smallint[], $6::text[], $7::int[], $8::text[],
                  $9::bigint[], $10::smallint[], $14::timestamptz[], $15::text[], $16::text[])
           u(id, token, outcome, error, http_status, channel, duration_ms, response, wait, next_step, created_at, probed, provider_id)
), held AS MATERIALIZED (
    SELECT o.id, o.epoch, o.attempts, o.cancel, o.has_turn, o.topic, o.ordering_key
      FROM outboxd.outbox o JOIN outcome u ON o.id = u.id AND u.is_ours
     WHERE o.id = ANY ($1::bigint[]) AND o.state = 'processing' AND o.epoch = u.token
       AND (NOT $12::bool OR o.lease_until < clock_timestamp() OR o.instance = ANY ($13::int[]))
     ORDER BY o.id FOR UPDATE OF o
), waiting AS (
    UPDATE outboxd.outbox o
       SET state = 'ready', instance = NULL, waits_for = u.probed, retry_at = clock_timestamp() + u.wait * interval '1 ms',
           route_step = coalesce(u.next_step, o.route_step), attempts = o.attempts - (u.probed IS NOT NULL)::int,
           channel_attempts = CASE WHEN u.next_step IS NULL THEN o.channel_attempts - (u.probed IS NOT NULL)::int ELSE 0 END
      FROM held h JOIN outcome u ON u.id = h.id
     WHERE o.id = ANY ($1::bigint[]) AND o.id = h.id AND u.wait IS NOT NULL AND NOT h.cancel
), ended AS (
    DELETE FROM outboxd.outbox o USING held h JOIN outcome u ON u.id = h.id
     WHERE o.id = ANY ($1::bigint[]) AND o.id = h.id AND (u.wait IS NULL OR h.cancel)
    RETURNING o.id, o.epoch, o.attempts, u.error, u.http_status, u.channel, u.provider_id, clock_timestamp() AS ended_at,
              CASE WHEN h.cancel THEN 'CANCELED' ELSE 'FAILED' END::outboxd.notification_status AS status
), logged AS (
    UPDATE outboxd.notification_log l
       SET status = e.status, finished_at = e.ended_at, failed_at = CASE WHEN e.status = 'FAILED' THEN e.ended_at END,
           epoch = e.epoch, attempts = e.attempts, error = e.error, http_status = e.http_status, channel = e.channel,
           provider_id = e.provider_id
      FROM ended e WHERE l.id = ANY ($1::bigint[]) AND l.id = e.id AND l.status = 'QUEUED'
), noted AS (
    INSERT INTO outboxd.attempt (notification_id, token, number, started_at, duration_ms, instance, http_status, outcome,
                                 channel, error, response, provider_id)
    SELECT u.id, u.token, CASE WHEN u.probed IS NULL THEN h.attempts END, clock_timestamp() - u.duration_ms * interval '1 ms', u.duration_ms, $11::int,
           u.http_status, CASE WHEN h.id IS NULL THEN 'late failure' ELSE u.outcome END, u.channel, u.error, u.response,
           u.provider_id
      FROM outcome u LEFT JOIN held h ON h.id = u.id
     WHERE h.id IS NOT NULL OR (u.is_ours AND NOT $12::bool)
)
SELECT u.id, h.id IS NOT NULL AS applied, e.id IS NOT NULL AS ended, e.status::text AS status,
       CASE WHEN e.id IS NOT NULL AND h.has_turn THEN ARRAY[h.topic, h.ordering_key] END AS released_key
  FROM outcome u LEFT JOIN held h ON h.id = u.id LEFT JOIN ended e ON e.id = u.id
