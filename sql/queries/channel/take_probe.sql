-- Of all instances one makes the call that shows whether the provider is back. A row: it is ours, or the circuit is
-- closed.
-- Interleavings: of two that ask at once the second waits for the row and finds it taken. If the circuit is closed in
-- between, it gets no row either and asks again. After a start with other credentials (probe_changed.sql) the probe is
-- left to who has them: another's outcome would say nothing of them. If nobody has made it within a minute, anyone may.
-- $1 channel · $2 origin · $3 instance · $4 for so long, in ms · $5 a digest of what it would be called with
-- Locks: the row. Index: channel_state_pkey.
WITH taken AS (
    UPDATE outboxd.channel_state h
       SET probe_by = $3::int, probe_until = clock_timestamp() + $4::bigint * interval '1 ms', changed_at = clock_timestamp()
     WHERE h.channel = $1::text AND h.origin = $2::text AND h.reason IS NOT NULL AND h.held_until <= clock_timestamp()
       AND (h.probe_until IS NULL OR h.probe_until <= clock_timestamp() OR h.probe_by = $3::int)
       AND (h.credentials IS NULL OR h.credentials = $5::text OR h.held_until < clock_timestamp() - interval '1 min')
    RETURNING 1
)
SELECT 1 FROM taken
UNION ALL
SELECT 1 WHERE NOT EXISTS (SELECT FROM outboxd.channel_state h
                            WHERE h.channel = $1::text AND h.origin = $2::text AND h.reason IS NOT NULL)
