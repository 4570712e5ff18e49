-- Starts a paused topic again: relays scan all of it. What went back carries retry_at and is published with it.
-- Locks: the topic's row. Index: topic_pkey.
CREATE OR REPLACE FUNCTION outboxd.resume(topic text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE outboxd.topic t SET paused_at = NULL, resumed_at = clock_timestamp() WHERE t.name = resume.topic AND t.paused_at IS NOT NULL;
    IF NOT FOUND THEN
        RAISE NOTICE 'topic % was not paused', quote_nullable(resume.topic);
        RETURN;
    END IF;
    INSERT INTO outboxd.audit (action, subject, affected) VALUES ('resume', resume.topic, 1);
    PERFORM pg_notify('outboxd', 'control');
END $$;

COMMENT ON FUNCTION outboxd.resume IS 'Start sending a paused topic again.';
