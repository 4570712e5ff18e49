-- The probe said nothing about the provider: anyone may make another.
-- Interleavings: a probe that another instance took over when ours had run out is left alone.
-- $1 channel · $2 origin · $3 instance
-- Locks: the row. Index: channel_state_pkey.
UPDATE outboxd.channel_state h SET probe_by = NULL, probe_until = NULL, changed_at = clock_timestamp()
 WHERE h.channel = $1::text AND h.origin = $2::text AND h.probe_by = $3::int
