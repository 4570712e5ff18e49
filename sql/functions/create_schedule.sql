-- A campaign that repeats. An instance works out its slots within a second or two: see outboxd.schedules.
CREATE OR REPLACE FUNCTION outboxd.create_schedule(
    name text, cron text, timezone text, topic text, audience text, lead interval DEFAULT '10 min',
    spread interval DEFAULT '0', catch_up interval DEFAULT '1 hour', expires_after interval DEFAULT NULL
) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    wanted outboxd.schedule;
    new_id bigint;
BEGIN
    wanted.name := create_schedule.name;
    wanted.cron := create_schedule.cron;
    wanted.timezone := create_schedule.timezone;
    wanted.topic := create_schedule.topic;
    wanted.audience := create_schedule.audience;
    wanted.lead := create_schedule.lead;
    wanted.spread := create_schedule.spread;
    wanted.catch_up := create_schedule.catch_up;
    wanted.expires_after := create_schedule.expires_after;
    PERFORM outboxd._reject_schedule('create_schedule', wanted);
    INSERT INTO outboxd.schedule (name, cron, timezone, topic, audience, lead, spread, catch_up, expires_after)
    VALUES (wanted.name, wanted.cron, wanted.timezone, wanted.topic, wanted.audience, wanted.lead, wanted.spread, wanted.catch_up,
            wanted.expires_after)
    ON CONFLICT (name) DO NOTHING
    RETURNING id INTO new_id;
    IF new_id IS NULL THEN
        RAISE EXCEPTION 'create_schedule: there is a schedule % already', quote_literal(wanted.name) USING ERRCODE = 'duplicate_object',
            HINT = 'Change it with outboxd.alter_schedule(), or drop it first.';
    END IF;
    INSERT INTO outboxd.audit (action, subject, affected, detail)
    VALUES ('create_schedule', wanted.name, 1, jsonb_build_object('cron', wanted.cron, 'timezone', wanted.timezone,
            'topic', wanted.topic, 'audience', wanted.audience));
    RETURN new_id;
END $$;

COMMENT ON FUNCTION outboxd.create_schedule IS
    'Send topic to everybody in audience (a view or set-returning function with recipient and payload) at each slot of cron in timezone.';
