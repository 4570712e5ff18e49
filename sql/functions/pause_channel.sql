-- Stops a channel on all instances until resume_channel(). Work for it waits and uses up no attempts. A channel that
-- nobody knows is paused too, with a notice: it may be a slip of the pen. Over HTTP, where nobody sees a notice, it is
-- refused.
-- Locks: the channel's row. Index: channel_state_pkey.
CREATE OR REPLACE FUNCTION outboxd.pause_channel(name text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF (octet_length(pause_channel.name) BETWEEN 1 AND 200) IS NOT TRUE THEN
        RAISE EXCEPTION 'pause_channel: name must have 1 to 200 bytes' USING ERRCODE = 'invalid_parameter_value',
            HINT = 'outboxd.channel_health lists the channels.';
    END IF;
    IF NOT EXISTS (SELECT FROM outboxd.channel_state h WHERE h.channel = pause_channel.name AND h.reason IS NOT NULL)
       AND NOT EXISTS (SELECT FROM outboxd.route r WHERE r.channel = pause_channel.name)
       AND NOT EXISTS (SELECT FROM outboxd.statistics_channel s WHERE s.channel = pause_channel.name) THEN
        IF current_setting('outboxd.token', true) <> '' THEN
            RAISE EXCEPTION 'nobody knows channel %: no route of a running instance names it, and it was not called lately',
                quote_literal(pause_channel.name) USING ERRCODE = 'no_data_found', HINT = 'GET /v1/channel_health lists the channels.';
        END IF;
        RAISE NOTICE 'channel % is paused, but nobody knows it: no route of a running instance names it, and it was not called lately',
            quote_literal(pause_channel.name)
            USING HINT = 'Mistyped? outboxd.channel_health lists the channels; outboxd.resume_channel(name) undoes it.';
    END IF;
    INSERT INTO outboxd.channel_state AS h (channel, paused_at) VALUES (pause_channel.name, clock_timestamp())
    ON CONFLICT (channel, origin) DO UPDATE
       SET paused_at = coalesce(h.paused_at, excluded.paused_at), changed_at = clock_timestamp();
    INSERT INTO outboxd.audit (action, subject, affected) VALUES ('pause_channel', pause_channel.name, 1);
    PERFORM pg_notify('outboxd', 'control');
END $$;

COMMENT ON FUNCTION outboxd.pause_channel IS
    'Stop a channel on all instances within a second; its work waits. A notice tells if nobody knows a channel of that name.';
