-- From now on the members of a role share the receipts of a consumer, and theirs of before are the role's. Where several
-- of them had received a message, the one with a response stands, else the first; the others are left behind.
-- Interleavings: two at once for one consumer and role: the second waits for the first on the primary key and then moves
-- what is left. A receive() that is under way while this commits keeps its receipt to its login, so that a repeat of that
-- one message is the first again: let the consumer rest for the moment of the call.
-- Locks: the new row; the receipts that it moves. Index: inbox_group_pkey, inbox_pkey.
CREATE OR REPLACE FUNCTION outboxd.share_consumer(consumer text, with_role text) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    shared oid := to_regrole(quote_ident(share_consumer.with_role));
    moved  bigint;
BEGIN
    IF share_consumer.consumer IS NULL OR octet_length(share_consumer.consumer) NOT BETWEEN 1 AND 200 THEN
        RAISE EXCEPTION 'share_consumer: % is no consumer', quote_nullable(share_consumer.consumer)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Pass the name that the service gives to receive(), of 1 to 200 bytes.';
    END IF;
    IF shared IS NULL THEN
        RAISE EXCEPTION 'share_consumer: there is no role %', quote_nullable(share_consumer.with_role)
            USING ERRCODE = 'undefined_object', HINT = 'Create it and grant it to the logins of the service: CREATE ROLE … NOLOGIN; GRANT … TO ….';
    END IF;
    INSERT INTO outboxd.inbox_group (consumer, role) VALUES (share_consumer.consumer, share_consumer.with_role)
    ON CONFLICT (consumer, role) DO NOTHING;
    UPDATE outboxd.inbox i SET owner = share_consumer.with_role
      FROM (SELECT DISTINCT ON (o.message_id) o.message_id, o.owner
              FROM outboxd.inbox o
             WHERE o.consumer = share_consumer.consumer AND o.owner <> share_consumer.with_role
               AND pg_has_role(to_regrole(quote_ident(o.owner)), shared, 'MEMBER')
               AND NOT EXISTS (SELECT FROM outboxd.inbox r WHERE r.consumer = share_consumer.consumer AND r.message_id = o.message_id
                                                             AND r.owner = share_consumer.with_role)
             ORDER BY o.message_id, o.response IS NULL, o.received_at) m
     WHERE i.consumer = share_consumer.consumer AND i.message_id = m.message_id AND i.owner = m.owner;
    GET DIAGNOSTICS moved = ROW_COUNT;
    INSERT INTO outboxd.audit (action, subject, affected, detail)
    VALUES ('share_consumer', share_consumer.consumer, moved, jsonb_build_object('role', share_consumer.with_role));
    RETURN moved;
END $$;

COMMENT ON FUNCTION outboxd.share_consumer IS
    'Members of the role share this consumer''s receipts of receive() from now on; returns how many of their own became shared.';
