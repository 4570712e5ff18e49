-- The dead letters of a topic back to work, oldest first: up to 1,000 at once, more in the background.
CREATE OR REPLACE FUNCTION outboxd.retry_dead(topic text, since timestamptz DEFAULT NULL, max integer DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    started  record;
    affected bigint;
BEGIN
    IF retry_dead.topic IS NULL THEN
        RAISE EXCEPTION 'retry_dead: topic must not be NULL' USING ERRCODE = 'null_value_not_allowed',
            HINT = 'Name the topic; outboxd.dead_letters lists what is dead.';
    END IF;
    SELECT s.matched, s.done, s.bulk_id INTO started FROM outboxd._bulk_start('retry',
        jsonb_strip_nulls(jsonb_build_object('topic', retry_dead.topic, 'since', retry_dead.since)), retry_dead.max, false) s;
    affected := CASE WHEN started.bulk_id IS NULL THEN started.done ELSE started.matched END;
    IF started.bulk_id IS NOT NULL THEN
        RAISE NOTICE '% dead letters are retried in the background: SELECT * FROM outboxd.bulk_actions WHERE id = %',
            affected, started.bulk_id;
    END IF;
    INSERT INTO outboxd.audit (action, subject, affected, detail)
    VALUES ('retry_dead', retry_dead.topic, affected,
            jsonb_build_object('since', retry_dead.since, 'max', retry_dead.max, 'bulk_id', started.bulk_id));
    RETURN affected;
END $$;

COMMENT ON FUNCTION outboxd.retry_dead IS
    'Retry the dead letters of a topic, oldest first; returns how many. More than 1,000 are worked off in the '
    'background: see outboxd.bulk_actions.';
