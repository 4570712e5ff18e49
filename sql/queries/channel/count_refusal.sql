-- A 401 or 403 is counted with those that the other instances heard: a row says how many in a row there are now. The one
-- that completes the streak opens the circuit next. None: calls are held, and what was refused waits.
-- Interleavings: of instances that count at once each waits for the row, so no two get the same number. If the one that
-- completes the streak dies before it has opened the circuit, the next gets a higher number and opens it. What was
-- counted and not recorded is counted again: then fewer notifications are used up. Nobody waits for the disk: what is
-- recorded because of it comes later in the server's log.
-- $1 channel · $2 origin · $3 a streak is forgotten after so long without another, in ms
-- Locks: the row. Index: channel_state_pkey.
INSERT INTO outboxd.channel_state AS h (channel, origin, refused, refused_at)
VALUES ($1::text, $2::text, 1, clock_timestamp())
ON CONFLICT (channel, origin) DO UPDATE
   SET refused = CASE WHEN h.refused_at < clock_timestamp() - $3::bigint * interval '1 ms' THEN 1 ELSE h.refused + 1 END,
       refused_at = clock_timestamp()
 WHERE h.reason IS NULL OR h.reason = 'retry_after' AND h.held_until <= clock_timestamp()
RETURNING h.refused
