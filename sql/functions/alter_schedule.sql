-- Changes what is given of a schedule; NULL leaves it, and an expires_after of 0 takes the expiry away. Slots from now
-- on follow the new text: what was prepared for a slot still to come is canceled and prepared anew. Without a change it
-- does just that, e.g. after a failed run.
-- Interleavings: the schedule's row is locked first, as an instance does that begins a run; see _cancel_runs().
CREATE OR REPLACE FUNCTION outboxd.alter_schedule(
    name text, cron text DEFAULT NULL, timezone text DEFAULT NULL, topic text DEFAULT NULL, audience text DEFAULT NULL,
    lead interval DEFAULT NULL, spread interval DEFAULT NULL, catch_up interval DEFAULT NULL, expires_after interval DEFAULT NULL
) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    wanted   outboxd.schedule;
    affected bigint;
BEGIN
    SELECT s.* INTO wanted FROM outboxd.schedule s WHERE s.name = alter_schedule.name FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'alter_schedule: there is no schedule %', quote_nullable(alter_schedule.name) USING ERRCODE = 'no_data_found',
            HINT = 'outboxd.schedules lists them.';
    END IF;
    wanted.cron := coalesce(alter_schedule.cron, wanted.cron);
    wanted.timezone := coalesce(alter_schedule.timezone, wanted.timezone);
    wanted.topic := coalesce(alter_schedule.topic, wanted.topic);
    wanted.audience := coalesce(alter_schedule.audience, wanted.audience);
    wanted.lead := coalesce(alter_schedule.lead, wanted.lead);
    wanted.spread := coalesce(alter_schedule.spread, wanted.spread);
    wanted.catch_up := coalesce(alter_schedule.catch_up, wanted.catch_up);
    wanted.expires_after := nullif(coalesce(alter_schedule.expires_after, wanted.expires_after), '0');
    PERFORM outboxd._reject_schedule('alter_schedule', wanted);
    UPDATE outboxd.schedule s
       SET cron = wanted.cron, timezone = wanted.timezone, topic = wanted.topic, audience = wanted.audience, lead = wanted.lead,
           spread = wanted.spread, catch_up = wanted.catch_up, expires_after = wanted.expires_after, version = s.version + 1,
           changed_at = clock_timestamp(), next_slot = NULL, error = NULL
     WHERE s.id = wanted.id RETURNING s.changed_at INTO wanted.changed_at;
    affected := outboxd._cancel_runs(wanted.id, wanted.changed_at);
    INSERT INTO outboxd.audit (action, subject, affected, detail)
    VALUES ('alter_schedule', wanted.name, affected, jsonb_build_object('cron', wanted.cron, 'timezone', wanted.timezone,
            'topic', wanted.topic, 'audience', wanted.audience));
    RETURN affected;
END $$;

COMMENT ON FUNCTION outboxd.alter_schedule IS
    'Change a schedule; what was prepared for slots still to come is canceled (the count) and prepared anew.';
