-- What follows an operator's change of a circuit: rows that wait for it are due at once, up to `rows_max`; the
-- action is on record; the instances read it. A notice if the channel, or this origin of it, was not held; over HTTP,
-- where nobody sees a notice, it is refused.
-- Locks: what _hasten() locks.
CREATE OR REPLACE FUNCTION outboxd._circuit_changed(action text, channel text, origin text, was_held boolean, rows_max integer)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT was_held AND current_setting('outboxd.token', true) <> '' THEN
        RAISE EXCEPTION 'channel %, origin % is not held', quote_nullable(channel), quote_nullable(origin)
            USING ERRCODE = 'no_data_found', HINT = 'GET /v1/channel_health lists what is held.';
    ELSIF NOT was_held THEN
        RAISE NOTICE 'channel %, origin % is not held', quote_nullable(channel), quote_nullable(origin)
            USING HINT = 'outboxd.channel_health lists what is held.';
        RETURN;
    END IF;
    PERFORM outboxd._hasten(channel, origin, rows_max);
    INSERT INTO outboxd.audit (action, subject, affected)
    VALUES (_circuit_changed.action, concat_ws(' ', channel, nullif(origin, '')), 1);
    PERFORM pg_notify('outboxd', 'control');
END $$;
