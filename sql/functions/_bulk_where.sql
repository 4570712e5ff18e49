-- What retry_where, discard_where and cancel_where share: start, audit, and a word to the operator.
CREATE OR REPLACE FUNCTION outboxd._bulk_where(action text, filter jsonb, dry_run boolean)
    RETURNS TABLE (matched bigint, done bigint, bulk_id bigint, note text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF _bulk_where.dry_run IS NULL THEN
        RAISE EXCEPTION '%_where: dry_run must be true or false', action USING ERRCODE = 'null_value_not_allowed';
    END IF;
    SELECT s.matched, s.done, s.bulk_id INTO matched, done, bulk_id
      FROM outboxd._bulk_start(_bulk_where.action, _bulk_where.filter, NULL, _bulk_where.dry_run) s;
    note := CASE WHEN _bulk_where.dry_run THEN 'dry run: nothing was changed; add dry_run => false'
                 WHEN bulk_id IS NOT NULL
                 THEN format('running in the background: SELECT * FROM outboxd.bulk_actions WHERE id = %s', bulk_id)
                 ELSE 'done' END;
    IF NOT _bulk_where.dry_run THEN
        INSERT INTO outboxd.audit (action, subject, affected, detail)
        VALUES (_bulk_where.action || '_where', _bulk_where.filter::text, CASE WHEN bulk_id IS NULL THEN done ELSE matched END,
                CASE WHEN bulk_id IS NOT NULL THEN jsonb_build_object('bulk_id', bulk_id) END);
    END IF;
    RETURN NEXT;
END $$;
