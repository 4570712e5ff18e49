-- Ends pause_channel(). A circuit that is open, or a provider's Retry-After, still keeps the channel from being called.
-- Of a channel that nobody knows, such as a mistyped one, nothing is left.
CREATE OR REPLACE FUNCTION outboxd.resume_channel(name text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE outboxd.channel_state h SET paused_at = NULL, changed_at = clock_timestamp()
     WHERE h.channel = resume_channel.name AND h.origin = '' AND h.paused_at IS NOT NULL;
    IF NOT FOUND THEN
        RAISE NOTICE 'channel % was not paused', quote_nullable(resume_channel.name);
        RETURN;
    END IF;
    DELETE FROM outboxd.channel_state h
     WHERE h.channel = resume_channel.name AND h.origin = '' AND h.reason IS NULL
       AND NOT EXISTS (SELECT FROM outboxd.route r WHERE r.channel = resume_channel.name)
       AND NOT EXISTS (SELECT FROM outboxd.statistics_channel s WHERE s.channel = resume_channel.name);
    INSERT INTO outboxd.audit (action, subject, affected) VALUES ('resume_channel', resume_channel.name, 1);
    PERFORM pg_notify('outboxd', 'control');
END $$;

COMMENT ON FUNCTION outboxd.resume_channel IS 'Start using a paused channel again.';
