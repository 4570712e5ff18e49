-- The idempotent receiver: call it first in the consumer's transaction. Of two at once the second waits for the
-- first's transaction: committed, it gets the stored response; rolled back, it is the first itself. Only logins that
-- share their receipts meet: whoever else uses the same names neither waits nor is found.
-- Locks: the receipt. Index: inbox_pkey; inbox_group_pkey.
CREATE OR REPLACE FUNCTION outboxd.receive(consumer text, message_id text) RETURNS TABLE (first boolean, response jsonb)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    mine text := outboxd._receipts_of(receive.consumer);
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
        INSERT INTO outboxd.inbox (consumer, message_id, owner) VALUES (receive.consumer, receive.message_id, mine)
        ON CONFLICT (consumer, message_id, owner) DO NOTHING;
        IF FOUND THEN
            RETURN QUERY SELECT true, NULL::jsonb;
            RETURN;
        END IF;
        RETURN QUERY SELECT false, i.response FROM outboxd.inbox i
         WHERE i.consumer = receive.consumer AND i.message_id = receive.message_id AND i.owner = mine;
        -- Not found: retention removed it in between; insert again.
        IF FOUND THEN
            RETURN;
        END IF;
    END LOOP;
END $$;

COMMENT ON FUNCTION outboxd.receive IS
    'First call for (consumer, message_id) by this login, or by those it shares the consumer with, gets first = true; a repeat gets false and the response stored by respond().';
