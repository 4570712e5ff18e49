-- Ends why a channel or one origin of it is held: an open circuit, or a provider's Retry-After. An operator's pause
-- stays. What waits for it is due at once, up to 10,000 rows; the rest at its time. The row stays, without a reason:
-- its time tells the instances that this is later than what they decided themselves.
-- Interleavings: an instance that opens the circuit after us finds the row and opens it again; one whose probe is under
-- way reports as ever.
-- Locks: the channel's row; what _circuit_changed() locks. Index: channel_state_pkey.
CREATE OR REPLACE FUNCTION outboxd.close_circuit(channel text, origin text DEFAULT '') RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE outboxd.channel_state h
       SET held_until = NULL, reason = NULL, openings = 0, refused = 0, probe_by = NULL, probe_until = NULL, changed_at = clock_timestamp()
     WHERE h.channel = close_circuit.channel AND h.origin = close_circuit.origin AND h.reason IS NOT NULL;
    PERFORM outboxd._circuit_changed('close_circuit', close_circuit.channel, close_circuit.origin, FOUND, 10000);
END $$;

COMMENT ON FUNCTION outboxd.close_circuit IS
    'End an open circuit, or a provider''s Retry-After, on all instances within a second: the provider is back. What waits '
    'is sent at once. origin as in outboxd.channel_health, where the URL comes from data.';
