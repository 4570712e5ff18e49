-- The idempotent receiver: call it first in the consumer's transaction. Of two at once the second waits for the
-- first's transaction: committed, it gets the stored response; rolled back, it is the first itself.
CREATE OR REPLACE FUNCTION outboxd.receive(consumer text, message_id text) RETURNS TABLE (first boolean, response jsonb)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    IF receive.consumer IS NULL OR receive.message_id IS NULL THEN
        RAISE EXCEPTION 'receive: % must not be NULL', CASE WHEN receive.consumer IS NULL THEN 'consumer' ELSE 'message_id' END
            USING ERRCODE = 'null_value_not_allowed', HINT = 'Pass the consuming service''s name and the message''s id (webhook-id).';
    END IF;
    IF octet_length(receive.consumer) NOT BETWEEN 1 AND 200 OR octet_length(receive.message_id) NOT BETWEEN 1 AND 512 THEN
        RAISE EXCEPTION 'receive: consumer has % bytes, message_id has %', octet_length(receive.consumer), octet_length(receive.message_id)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'A consumer has 1 to 200 bytes, a message_id 1 to 512; hash longer ids.';
    END IF;
    LOOP
        INSERT INTO outboxd.inbox (consumer, message_id) VALUES (receive.consumer, receive.message_id)
        ON CONFLICT (consumer, message_id) DO NOTHING;
        IF FOUND THEN
            RETURN QUERY SELECT true, NULL::jsonb;
            RETURN;
        END IF;
        RETURN QUERY SELECT false, i.response FROM outboxd.inbox i
         WHERE i.consumer = receive.consumer AND i.message_id = receive.message_id;
        -- Not found: retention removed it in between; insert again.
        IF FOUND THEN
            RETURN;
        END IF;
    END LOOP;
END $$;

COMMENT ON FUNCTION outboxd.receive IS
    'First caller of (consumer, message_id) gets first = true; a repeat gets false and the response stored by respond().';
