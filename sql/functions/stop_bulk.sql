-- Ends a bulk action after the batch it is at. What it has done stays done.
CREATE OR REPLACE FUNCTION outboxd.stop_bulk(id bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    stopped record;
BEGIN
    UPDATE outboxd.bulk_action b SET ended_at = clock_timestamp(), stopped_by = session_user
     WHERE b.id = stop_bulk.id AND b.ended_at IS NULL RETURNING b.done, b.matched INTO stopped;
    IF FOUND THEN
        INSERT INTO outboxd.audit (action, subject, affected, detail)
        VALUES ('stop_bulk', stop_bulk.id::text, stopped.done, jsonb_build_object('matched', stopped.matched));
        RETURN true;
    END IF;
    IF NOT EXISTS (SELECT FROM outboxd.bulk_action b WHERE b.id = stop_bulk.id) THEN
        RAISE EXCEPTION 'stop_bulk: there is no bulk action %', coalesce(stop_bulk.id::text, 'NULL')
            USING ERRCODE = 'no_data_found', HINT = 'outboxd.bulk_actions lists them.';
    END IF;
    RAISE NOTICE 'bulk action % had ended', stop_bulk.id;
    RETURN false;
END $$;

COMMENT ON FUNCTION outboxd.stop_bulk IS
    'Stop a bulk action (see outboxd.bulk_actions) after its current batch. False: it had ended.';
