-- Takes a notification back, or says why not.
--
-- Interleavings: PENDING rows race the producer on the log row (its update and ours are both guarded by the
-- status). Live rows race publish, claim and outcome on the outbox row: we lock it first, so either the claim
-- came before (in flight: the flag stops further attempts) or it finds nothing to claim. A row that was neither
-- PENDING nor live but is now (an operator's retry in between) is read again. What a copy brought waits elsewhere.
-- Locks: the log row if it is PENDING, else the outbox row; see _cancel(). Index: notification_log_pkey, outbox_pkey.
CREATE OR REPLACE FUNCTION outboxd.cancel(id bigint) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    work           outboxd.state;
    current_status text;
    answer         text;
BEGIN
    FOR attempt IN 1..10 LOOP
        UPDATE outboxd.notification_log l SET status = 'CANCELED', finished_at = clock_timestamp()
         WHERE l.id = cancel.id AND l.status = 'PENDING';
        IF FOUND THEN
            answer := 'canceled';
            EXIT;
        END IF;
        SELECT o.state INTO work FROM outboxd.outbox o WHERE o.id = cancel.id FOR UPDATE;
        EXIT WHEN FOUND;
        SELECT l.status INTO current_status FROM outboxd.notification_log l WHERE l.id = cancel.id;
        IF current_status IS NULL THEN
            PERFORM outboxd._status_for('cancel', cancel.id);
        ELSIF current_status NOT IN ('PENDING', 'QUEUED') THEN
            RETURN 'nothing to cancel: it is ' || current_status;
        ELSIF EXISTS (SELECT FROM outboxd.copied c WHERE c.id = cancel.id) AND outboxd._cancel(ARRAY[cancel.id]) = 1 THEN
            INSERT INTO outboxd.audit (action, subject, affected, detail)
            VALUES ('cancel', cancel.id::text, 1, jsonb_build_object('answer', 'canceled'));
            RETURN 'canceled';
        ELSIF attempt = 10 THEN
            RAISE EXCEPTION 'cancel: notification % is % but has no live work', cancel.id, current_status
                USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Try again; if it stays so, the outbox was tampered with.';
        END IF;
    END LOOP;

    IF answer IS NULL THEN
        PERFORM outboxd._cancel(ARRAY[cancel.id]);
        answer := CASE WHEN work = 'processing' THEN 'in flight: no further attempt' ELSE 'canceled' END;
    END IF;
    INSERT INTO outboxd.audit (action, subject, affected, detail)
    VALUES ('cancel', cancel.id::text, 1, jsonb_build_object('answer', answer));
    RETURN answer;
END $$;

COMMENT ON FUNCTION outboxd.cancel IS
    'Cancel a notification; says what happened: canceled, or in flight: no further attempt.';
