-- Claims that made no call are undone (channel held, destination at its limit, drain): 2 → 0, tried again after the
-- wait given, the attempt not counted. Only under the token. A cancel that came in meanwhile is left to the next
-- claim's record: the flag stays.
-- $1 ids · $2 tokens · $3 waits in ms
-- Locks: the rows. Index: outbox_pkey.
UPDATE outboxd.outbox o
   SET state = 0, retry_at = clock_timestamp() + u.wait * interval '1 ms', instance = NULL,
       attempts = o.attempts - 1, channel_attempts = greatest(o.channel_attempts - 1, 0)
  FROM (SELECT u.id, u.token, u.wait FROM unnest($1::bigint[], $2::int[], $3::bigint[]) u(id, token, wait) ORDER BY 1) u
 WHERE o.id = u.id AND o.epoch = u.token AND o.state = 2
