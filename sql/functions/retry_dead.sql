-- The dead letters of a topic back to work, oldest first.
CREATE OR REPLACE FUNCTION outboxd.retry_dead(topic text, since timestamptz DEFAULT NULL, max integer DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    affected bigint;
BEGIN
    IF retry_dead.topic IS NULL THEN
        RAISE EXCEPTION 'retry_dead: topic must not be NULL' USING ERRCODE = 'null_value_not_allowed',
            HINT = 'Name the topic; outboxd.dead_letters lists what is dead.';
    END IF;
    SELECT outboxd._requeue(coalesce(array_agg(d.id), '{}')) INTO affected FROM (
        SELECT l.id FROM outboxd.notification_log l
         WHERE l.failed_at IS NOT NULL AND l.failed_at >= coalesce(retry_dead.since, '-infinity') AND l.topic = retry_dead.topic
         ORDER BY l.failed_at LIMIT retry_dead.max) d;
    INSERT INTO outboxd.audit (action, subject, affected, detail)
    VALUES ('retry_dead', retry_dead.topic, affected, jsonb_build_object('since', retry_dead.since, 'max', retry_dead.max));
    RETURN affected;
END $$;

COMMENT ON FUNCTION outboxd.retry_dead IS 'Retry the dead letters of a topic, oldest first; returns how many.';
