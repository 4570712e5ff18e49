-- Ends a schedule and cancels what of it was prepared and not yet released; its runs stay on record.
-- Interleavings: the schedule's row goes first, so no instance begins another run; see _cancel_runs().
CREATE OR REPLACE FUNCTION outboxd.drop_schedule(name text) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    old_id   bigint;
    affected bigint;
BEGIN
    DELETE FROM outboxd.schedule s WHERE s.name = drop_schedule.name RETURNING s.id INTO old_id;
    IF old_id IS NULL THEN
        RAISE EXCEPTION 'drop_schedule: there is no schedule %', quote_nullable(drop_schedule.name) USING ERRCODE = 'no_data_found',
            HINT = 'outboxd.schedules lists them.';
    END IF;
    affected := outboxd._cancel_runs(old_id, '-infinity');
    INSERT INTO outboxd.audit (action, subject, affected) VALUES ('drop_schedule', drop_schedule.name, affected);
    RETURN affected;
END $$;

COMMENT ON FUNCTION outboxd.drop_schedule IS
    'End a schedule and cancel what was prepared and not yet released; returns how many.';
