-- Lets the next call of a channel, or of one origin of it, go out as a probe: open → half-open, now instead of at the
-- end of its time. Its outcome closes the circuit, or opens it again for longer. A probe that fails uses up no attempt
-- of its notification. A few rows that wait for it are due at once, so that there is one to probe with.
-- Interleavings: a probe that is under way stays the only one.
-- Locks: the channel's row; what _circuit_changed() locks. Index: channel_state_pkey.
CREATE OR REPLACE FUNCTION outboxd.probe_channel(channel text, origin text DEFAULT '') RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE outboxd.channel_state h SET held_until = least(h.held_until, clock_timestamp()), changed_at = clock_timestamp()
     WHERE h.channel = probe_channel.channel AND h.origin = probe_channel.origin AND h.reason IS NOT NULL;
    PERFORM outboxd._circuit_changed('probe_channel', probe_channel.channel, probe_channel.origin, FOUND, 10);
END $$;

COMMENT ON FUNCTION outboxd.probe_channel IS
    'Try a held channel with one call, within a second: if it succeeds the circuit closes, else it stays open. The call uses '
    'up no attempt. origin as in outboxd.channel_health, where the URL comes from data.';
