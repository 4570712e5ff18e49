-- An instance starts: circuits that opened when their channels called with something else (a renewed token, another URL)
-- are due for a probe now, and their next wait is the first. A few rows for each are due at once, to probe with. Says of
-- which channels, and how many circuits.
-- Interleavings: of two that start at once the second finds the digest changed and nothing to do. A probe that is under
-- way stays the only one; if it fails, it opens the circuit again as ever.
-- $1 channels · $2 a digest of what each calls with
-- Locks: the rows, in the order of their key; what _hasten() locks. Index: none, there is a row only for what is or was held.
WITH held AS MATERIALIZED (
    SELECT h.channel, h.origin, u.digest
      FROM outboxd.channel_state h JOIN unnest($1::text[], $2::text[]) u(channel, digest) ON u.channel = h.channel
     WHERE h.reason <> 'retry_after' AND h.credentials IS DISTINCT FROM u.digest ORDER BY h.channel, h.origin FOR UPDATE OF h
), changed AS (
    UPDATE outboxd.channel_state h
       SET held_until = least(h.held_until, clock_timestamp()), openings = 0, credentials = c.digest, changed_at = clock_timestamp()
      FROM held c WHERE h.channel = c.channel AND h.origin = c.origin
    RETURNING h.channel, h.origin
)
SELECT c.channel, count(*) AS circuits, sum(outboxd._hasten(c.channel, c.origin, 10)) AS hastened FROM changed c GROUP BY 1
