-- Cancels the open runs of a schedule with a slot after the time given, and what of them is not yet released; returns
-- how many notifications.
--
-- Interleavings: a chunk being copied holds the run's row, so it is either done before (a later statement: its rows
-- are seen) or finds the run canceled; so does a reading of the audience. The producer's rows are locked: we wait for
-- its short transaction and, the row no longer being PENDING, leave it alone.
CREATE OR REPLACE FUNCTION outboxd._cancel_runs(schedule_id bigint, slots_after timestamptz) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    run      record;
    affected bigint;
    total    bigint := 0;
BEGIN
    FOR run IN
        UPDATE outboxd.schedule_run r SET state = 'canceled', ended_at = clock_timestamp()
         WHERE r.schedule_id = _cancel_runs.schedule_id AND r.ended_at IS NULL AND r.slot > _cancel_runs.slots_after
        RETURNING r.id, r.topic, r.release_at, r.spread
    LOOP
        UPDATE outboxd.notification_log l SET status = 'CANCELED', finished_at = clock_timestamp()
         WHERE l.topic = run.topic AND l.due_at BETWEEN run.release_at AND run.release_at + run.spread
           AND starts_with(l.dedup_key, 'schedule:' || run.id || ':');
        GET DIAGNOSTICS affected = ROW_COUNT;
        total := total + affected;
    END LOOP;
    RETURN total;
END $$;
