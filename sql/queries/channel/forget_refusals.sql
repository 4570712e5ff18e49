-- The provider took a call of an instance that it had refused: its streak of 401 and 403 is over, for all instances.
-- Interleavings: one that is counted at the same time is of the next streak, or of this one and forgotten with it. What
-- was opened meanwhile stays open.
-- $1 channel · $2 origin
-- Locks: the row. Index: channel_state_pkey.
UPDATE outboxd.channel_state h SET refused = 0 WHERE h.channel = $1::text AND h.origin = $2::text AND h.refused > 0
