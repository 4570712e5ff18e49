-- A new notification with the contents of a SENT one; returns its id. The dedup_key stays with the first.
CREATE OR REPLACE FUNCTION outboxd.resend(id bigint) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    old    record;
    new_id bigint;
BEGIN
    SELECT n.status, n.topic, n.recipient, n.payload, n.ordering_key, n.headers INTO old
      FROM outboxd.notifications n WHERE n.id = resend.id;
    IF NOT FOUND THEN
        PERFORM outboxd._status_for('resend', resend.id);
    ELSIF old.status <> 'SENT' THEN
        RAISE EXCEPTION 'resend: notification % is %, not SENT', resend.id, old.status
            USING ERRCODE = 'object_not_in_prerequisite_state',
            HINT = CASE WHEN old.status IN ('FAILED', 'CANCELED') THEN 'Use outboxd.retry(id).' ELSE 'It is still on its way.' END;
    END IF;
    new_id := outboxd.notify(old.topic, old.recipient, old.payload, ordering_key => old.ordering_key, headers => old.headers);
    INSERT INTO outboxd.audit (action, subject, affected, detail)
    VALUES ('resend', resend.id::text, 1, jsonb_build_object('new_id', new_id));
    RETURN new_id;
END $$;

COMMENT ON FUNCTION outboxd.resend IS 'Make a new notification of a SENT one; returns the new id.';
