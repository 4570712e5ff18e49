-- Counts what an action would change and, unless that is all that was asked for, does it: up to 1,000 rows here and
-- now, more by the running instances (see _bulk_step). Times in the filter are read once, here, in the session of
-- whoever asked, and written down with their zone: instances may have another TimeZone or DateStyle, and "yesterday" is
-- another day tomorrow.
CREATE OR REPLACE FUNCTION outboxd._bulk_start(action text, filter jsonb, rows_max bigint, dry_run boolean)
    RETURNS TABLE (matched bigint, done bigint, bulk_id bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    upto timestamptz := clock_timestamp();
    ids  bigint[];
BEGIN
    SELECT filter || coalesce(jsonb_object_agg(e.key, e.value::timestamptz), '{}') INTO filter
      FROM jsonb_each_text(filter) e WHERE e.key IN ('since', 'until');
    -- The functions give their rows in order, and an array keeps it.
    IF action IN ('retry', 'discard') THEN
        SELECT count(*), array_agg(d.id) INTO matched, ids FROM outboxd._pick_dead(filter, upto, '-infinity', 0, 1000000) d WHERE d.matches;
    ELSE
        SELECT count(*), array_agg(d.id) INTO matched, ids FROM (
            SELECT w.id FROM outboxd._pick_waiting(filter, upto, 0::smallint, '', '-infinity', 0, 1000000) w WHERE w.matches
            UNION ALL
            SELECT w.id FROM outboxd._pick_waiting(filter, upto, 1::smallint, '', '-infinity', 0, 1000000) w WHERE w.matches) d;
    END IF;
    matched := least(matched, rows_max);
    done := 0;
    IF dry_run THEN
        RETURN NEXT;
        RETURN;
    END IF;
    IF matched <= 1000 THEN
        ids := coalesce(ids[1:matched], '{}');
        done := CASE action WHEN 'retry' THEN outboxd._requeue(ids) WHEN 'discard' THEN outboxd._discard(ids) ELSE outboxd._cancel(ids) END;
    ELSE
        INSERT INTO outboxd.bulk_action (action, filter, actor, started_at, matched, rows_max)
        VALUES (action, filter, session_user, upto, matched, rows_max) RETURNING id INTO bulk_id;
    END IF;
    RETURN NEXT;
END $$;
