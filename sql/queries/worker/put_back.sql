-- Messages that cannot start now (destination full, circuit open, topic paused) go back unclaimed, with a time:
-- published → ready. Nobody's attempt is burned.
-- Interleavings: only under the message's epoch: whatever has moved on since (claim, sweep, cancel) is left alone.
-- The rows are named by the array as well as joined: a join alone may be planned as a scan of all that is live.
-- $1 ids · $2 epochs · $3 waits in ms · $4 route steps to go on with (NULL: the same) · $5 the origins that they wait
-- for ('': the channel as a whole; NULL: neither)
-- Locks: the rows. Index: outbox_pkey.
UPDATE outboxd.outbox o
   SET state = 'ready', retry_at = clock_timestamp() + u.wait * interval '1 ms', instance = NULL, waits_for = u.origin,
       route_step = coalesce(u.next_step, o.route_step),
       channel_attempts = CASE WHEN u.next_step IS NULL THEN o.channel_attempts ELSE 0 END
  FROM (SELECT u.* FROM unnest($1::bigint[], $2::int[], $3::bigint[], $4::smallint[], $5::text[]) u(id, epoch, wait, next_step, origin) ORDER BY 1) u
 WHERE o.id = ANY ($1::bigint[]) AND o.id = u.id AND o.epoch = u.epoch AND o.state = 'published'
