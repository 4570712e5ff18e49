-- Stops a topic on all instances: relays publish nothing of it, and what is already in the queue is handed back at the
-- claim. Calls under way finish. Locks: the topic's row. Index: topic_pkey.
CREATE OR REPLACE FUNCTION outboxd.pause(topic text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF (octet_length(pause.topic) BETWEEN 1 AND 200) IS NOT TRUE THEN
        RAISE EXCEPTION 'pause: topic must have 1 to 200 bytes' USING ERRCODE = 'invalid_parameter_value',
            HINT = 'outboxd.queue_state lists the topics with work.';
    END IF;
    INSERT INTO outboxd.topic AS t (name, paused_at) VALUES (pause.topic, clock_timestamp())
    ON CONFLICT (name) DO UPDATE SET paused_at = coalesce(t.paused_at, excluded.paused_at);
    INSERT INTO outboxd.audit (action, subject, affected) VALUES ('pause', pause.topic, 1);
    PERFORM pg_notify('outboxd', 'control');
END $$;

COMMENT ON FUNCTION outboxd.pause IS 'Stop sending a topic, on all instances within a second.';
