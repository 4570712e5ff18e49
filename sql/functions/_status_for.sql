-- Where a notification is, for an operator's function that must find it; raises in that function's name if it does not.
-- Locks: none. Index: notification_log_pkey, outbox_pkey.
CREATE OR REPLACE FUNCTION outboxd._status_for(action text, id bigint) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    current_status text := outboxd.status(_status_for.id);
BEGIN
    IF current_status IS NULL THEN
        RAISE EXCEPTION '%: there is no notification %', action, coalesce(_status_for.id::text, 'NULL')
            USING ERRCODE = 'no_data_found', HINT = 'Its retention may have passed; see outboxd.notifications.';
    END IF;
    RETURN current_status;
END $$;
