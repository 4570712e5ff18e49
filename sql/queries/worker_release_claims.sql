-- Claims that made no call are undone (channel held, destination at its limit, drain): 2 → 0, tried again after the
-- wait given, the attempt not counted. Only under the token. A cancel that came in meanwhile is left to the next
-- claim's record: the flag stays.
-- $1 ids · $2 tokens · $3 waits in ms · $4 channel positions to go on with (NULL: the same)
-- Locks: the rows. Index: outbox_pkey.
WITH released AS (
    UPDATE outboxd.outbox o
       SET state = 0, retry_at = clock_timestamp() + u.wait * interval '1 ms', instance = NULL,
           attempts = o.attempts - 1, route_step = coalesce(u.next_channel, o.route_step),
           channel_attempts = CASE WHEN u.next_channel IS NULL THEN o.channel_attempts - 1 ELSE 0 END
      FROM (SELECT u.id, u.token, u.wait, u.next_channel
              FROM unnest($1::bigint[], $2::int[], $3::bigint[], $4::smallint[]) u(id, token, wait, next_channel) ORDER BY 1) u
     WHERE o.id = u.id AND o.epoch = u.token AND o.state = 2
    RETURNING o.id, o.retry_at
)
INSERT INTO outboxd.timer (at, id) SELECT r.retry_at, r.id FROM released r
