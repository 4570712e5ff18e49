-- Keeps a schedule from running until resume_schedule(). What was prepared for slots still to come is canceled; returns
-- how many. A slot that passes meanwhile is on record as paused. One that is being sent goes on: pause its topic to
-- hold that.
-- Interleavings: the schedule's row is locked first, as an instance does that begins a run. The new version voids what
-- it worked out before, and lets the slots canceled here run after all if the schedule is resumed before they come.
CREATE OR REPLACE FUNCTION outboxd.pause_schedule(name text) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    found_id  bigint;
    is_paused boolean;
    pause_at  timestamptz;
    affected  bigint;
BEGIN
    SELECT s.id, s.paused_at IS NOT NULL INTO found_id, is_paused FROM outboxd.schedule s WHERE s.name = pause_schedule.name FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'pause_schedule: there is no schedule %', quote_nullable(pause_schedule.name) USING ERRCODE = 'no_data_found',
            HINT = 'outboxd.schedules lists them.';
    END IF;
    IF is_paused THEN
        RAISE NOTICE 'schedule % is paused already', quote_literal(pause_schedule.name);
        RETURN 0;
    END IF;
    pause_at := clock_timestamp();
    UPDATE outboxd.schedule s
       SET paused_at = pause_at, version = s.version + 1,
           next_slot = least(s.next_slot, (SELECT min(r.slot) FROM outboxd.schedule_run r
                                            WHERE r.schedule_id = s.id AND r.ended_at IS NULL AND r.slot > pause_at))
     WHERE s.id = found_id;
    affected := outboxd._cancel_runs(found_id, pause_at);
    INSERT INTO outboxd.audit (action, subject, affected) VALUES ('pause_schedule', pause_schedule.name, affected);
    RETURN affected;
END $$;

COMMENT ON FUNCTION outboxd.pause_schedule IS
    'Keep a schedule from running until resume_schedule(); what was prepared for slots still to come is canceled (the count).';
