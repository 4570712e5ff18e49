-- Ends pause_schedule(): slots from now on run. Those that passed meanwhile do not, however long catch_up is.
-- Interleavings: the new version voids what an instance worked out while it was paused.
CREATE OR REPLACE FUNCTION outboxd.resume_schedule(name text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    is_paused boolean;
BEGIN
    SELECT s.paused_at IS NOT NULL INTO is_paused FROM outboxd.schedule s WHERE s.name = resume_schedule.name FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'resume_schedule: there is no schedule %', quote_nullable(resume_schedule.name) USING ERRCODE = 'no_data_found',
            HINT = 'outboxd.schedules lists them.';
    END IF;
    IF NOT is_paused THEN
        RAISE NOTICE 'schedule % was not paused', quote_literal(resume_schedule.name);
        RETURN;
    END IF;
    UPDATE outboxd.schedule s SET paused_at = NULL, version = s.version + 1, changed_at = clock_timestamp()
     WHERE s.name = resume_schedule.name;
    INSERT INTO outboxd.audit (action, subject, affected) VALUES ('resume_schedule', resume_schedule.name, 1);
END $$;

COMMENT ON FUNCTION outboxd.resume_schedule IS 'Let a paused schedule run again, from its next slot on.';
