-- The provider is back. The row goes unless an operator's pause still needs it.
-- Interleavings: a pause that commits meanwhile keeps the row, and the circuit open until the next probe closes it.
-- Whoever opens it at the same time comes first and is undone, or second and stands.
-- $1 channel · $2 origin
-- Locks: the row. Index: channel_state_pkey.
WITH gone AS (
    DELETE FROM outboxd.channel_state h WHERE h.channel = $1::text AND h.origin = $2::text AND h.paused_at IS NULL
)
UPDATE outboxd.channel_state h
   SET held_until = NULL, reason = NULL, openings = 0, refused = 0, probe_by = NULL, probe_until = NULL, changed_at = clock_timestamp()
 WHERE h.channel = $1::text AND h.origin = $2::text AND h.paused_at IS NOT NULL
