-- Starts a paused topic again; relays look at its whole lane once. What its stretches cover has been handed back and parked, or is
-- still in the queue: without them it is published again, and the claim drops the copies.
CREATE OR REPLACE FUNCTION outboxd.resume(topic text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE outboxd.topic t SET paused_at = NULL, rewinds = t.rewinds + 1
     WHERE t.name = resume.topic AND t.paused_at IS NOT NULL;
    IF NOT FOUND THEN
        RAISE NOTICE 'topic % was not paused', quote_nullable(resume.topic);
        RETURN;
    END IF;
    DELETE FROM outboxd.publication p USING outboxd.topic t WHERE t.name = resume.topic AND p.lane = t.lane;
    INSERT INTO outboxd.audit (action, subject, affected) VALUES ('resume', resume.topic, 1);
    PERFORM pg_notify('outboxd', 'control');
END $$;

COMMENT ON FUNCTION outboxd.resume IS 'Start sending a paused topic again.';
