-- Takes a notification back, or says why not.
--
-- Interleavings: PENDING rows race the producer on the log row (its update and ours are both guarded by the
-- status). Live rows race publish, claim and outcome on the outbox row: we lock it first, so either the claim
-- came before (in flight: the flag stops further attempts) or it finds nothing to claim.
CREATE OR REPLACE FUNCTION outboxd.cancel(id bigint) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    row    record;
    answer text;
BEGIN
    UPDATE outboxd.notification_log l SET status = 'CANCELED', finished_at = clock_timestamp()
     WHERE l.id = cancel.id AND l.status = 'PENDING';
    IF FOUND THEN
        answer := 'canceled';
    ELSE
        SELECT o.state, o.epoch, o.attempts, o.ordering_key INTO row
          FROM outboxd.outbox o WHERE o.id = cancel.id FOR UPDATE;
        IF NOT FOUND THEN
            SELECT 'nothing to cancel: it is ' || l.status INTO answer FROM outboxd.notification_log l WHERE l.id = cancel.id;
            IF answer IS NULL THEN
                RAISE EXCEPTION 'cancel: there is no notification %', coalesce(cancel.id::text, 'NULL')
                    USING ERRCODE = 'no_data_found', HINT = 'Its retention may have passed; see outboxd.notifications.';
            END IF;
            RETURN answer;
        ELSIF row.state = 2 THEN
            UPDATE outboxd.outbox o SET cancel = true WHERE o.id = cancel.id;
            answer := 'in flight: no further attempt';
        ELSE
            DELETE FROM outboxd.outbox o WHERE o.id = cancel.id;
            UPDATE outboxd.notification_log l
               SET status = 'CANCELED', finished_at = clock_timestamp(), epoch = row.epoch, attempts = row.attempts
             WHERE l.id = cancel.id AND l.status = 'QUEUED';
            PERFORM outboxd._admit(ARRAY[row.ordering_key]);
            PERFORM outboxd._ring();
            answer := 'canceled';
        END IF;
    END IF;
    INSERT INTO outboxd.audit (action, subject, affected, detail)
    VALUES ('cancel', cancel.id::text, 1, jsonb_build_object('answer', answer));
    RETURN answer;
END $$;

COMMENT ON FUNCTION outboxd.cancel IS 'Cancel a notification; says what happened: canceled, or in flight: no further attempt.';
