-- Claims that made no call are undone (topic paused, no route, lease too short, another's probe): processing → ready, tried again after the
-- wait given, the attempt not counted.
-- Interleavings: only under the token: a claim that a sweep ended is left alone. A row that was canceled meanwhile ends
-- here: whoever was told "no further attempt" can rely on it.
-- The rows are named by the array as well as joined: a join alone may be planned as a scan of all that is live.
-- $1 ids · $2 tokens · $3 waits in ms · $4 route steps to go on with (NULL: the same) · $5 the origins that they wait
-- for ('': the channel as a whole; NULL: neither)
-- Locks: outbox rows, then log rows, by id. Index: outbox_pkey, notification_log_pkey.
WITH held AS MATERIALIZED (
    SELECT o.id, o.cancel, u.wait, u.next_step, u.origin
      FROM unnest($1::bigint[], $2::int[], $3::bigint[], $4::smallint[], $5::text[]) u(id, token, wait, next_step, origin)
      JOIN outboxd.outbox o ON o.id = ANY ($1::bigint[]) AND o.id = u.id AND o.epoch = u.token AND o.state = 'processing' ORDER BY o.id FOR UPDATE OF o
), released AS (
    UPDATE outboxd.outbox o
       SET state = 'ready', retry_at = clock_timestamp() + h.wait * interval '1 ms', instance = NULL, waits_for = h.origin,
           attempts = o.attempts - 1, route_step = coalesce(h.next_step, o.route_step),
           channel_attempts = CASE WHEN h.next_step IS NULL THEN o.channel_attempts - 1 ELSE 0 END
      FROM held h WHERE o.id = ANY ($1::bigint[]) AND o.id = h.id AND NOT h.cancel
), ended AS (
    DELETE FROM outboxd.outbox o USING held h WHERE o.id = ANY ($1::bigint[]) AND o.id = h.id AND h.cancel
    RETURNING o.id, o.epoch, o.attempts, CASE WHEN o.has_turn THEN ARRAY[o.topic, o.ordering_key] END AS released_key
), logged AS (
    UPDATE outboxd.notification_log l
       SET status = 'CANCELED', finished_at = clock_timestamp(), epoch = e.epoch, attempts = e.attempts - 1
      FROM ended e WHERE l.id = ANY ($1::bigint[]) AND l.id = e.id AND l.status = 'QUEUED'
)
SELECT e.released_key FROM ended e
