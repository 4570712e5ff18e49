-- Ends what holds a channel or one origin of it: an open circuit, or a provider's Retry-After. An operator's pause stays. What
-- waits for it is due at once, up to 10,000 rows; the rest at its time. The row stays, without a reason: its time tells the
-- instances that this is later than what they decided themselves.
-- Interleavings: an instance that opens the circuit after us finds the row and holds it again; one whose probe is under way
-- reports as ever.
-- Locks: the channel's row; what _hasten() locks. Index: channel_state_pkey.
CREATE OR REPLACE FUNCTION outboxd.close_circuit(channel text, origin text DEFAULT '') RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE outboxd.channel_state h
       SET held_until = NULL, reason = NULL, openings = 0, probe_by = NULL, probe_until = NULL, changed_at = clock_timestamp()
     WHERE h.channel = close_circuit.channel AND h.origin = close_circuit.origin AND h.reason IS NOT NULL;
    IF NOT FOUND THEN
        RAISE NOTICE 'nothing holds channel %, origin %', quote_nullable(close_circuit.channel), quote_nullable(close_circuit.origin)
            USING HINT = 'outboxd.channel_health lists what is held.';
        RETURN;
    END IF;
    PERFORM outboxd._hasten(close_circuit.channel, 10000);
    INSERT INTO outboxd.audit (action, subject, affected)
    VALUES ('close_circuit', concat_ws(' ', close_circuit.channel, nullif(close_circuit.origin, '')), 1);
    PERFORM pg_notify('outboxd', 'control');
END $$;

COMMENT ON FUNCTION outboxd.close_circuit IS
    'End an open circuit, or a provider''s Retry-After, on all instances within a second: the provider is back. What waits '
    'is sent at once. origin as in outboxd.channel_health, where the URL comes from data.';
