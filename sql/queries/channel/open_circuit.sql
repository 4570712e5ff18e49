-- Calls to an origin are held, for all instances. A longer wait that is there already stands; any probe is over.
-- Interleavings: of two that open it at once the longer wait stands; after a close the row is written anew.
-- $1 channel · $2 origin · $3 for so long, in ms · $4 reason · $5 openings in a row · $6 a digest of what it was called
-- with · $7 whether the provider asked for this wait
-- Locks: the row. Index: channel_state_pkey.
INSERT INTO outboxd.channel_state AS h (channel, origin, held_until, reason, openings, credentials, is_asked)
VALUES ($1::text, $2::text, clock_timestamp() + $3::bigint * interval '1 ms', $4::text, $5::int, $6::text, $7::bool)
ON CONFLICT (channel, origin) DO UPDATE
   SET held_until = greatest(h.held_until, excluded.held_until), reason = excluded.reason,
       is_asked = CASE WHEN h.held_until > excluded.held_until THEN h.is_asked ELSE excluded.is_asked END,
       since = CASE WHEN h.reason IS NULL OR h.reason = 'retry_after' AND excluded.reason <> 'retry_after' THEN excluded.since ELSE h.since END,
       openings = greatest(h.openings, excluded.openings), credentials = excluded.credentials, probe_by = NULL, probe_until = NULL,
       changed_at = clock_timestamp()
