-- Ends what share_consumer() said: each login has receipts of its own again, and the shared ones are nobody's.
-- Locks: the row. Index: inbox_group_pkey.
CREATE OR REPLACE FUNCTION outboxd.unshare_consumer(consumer text, with_role text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    DELETE FROM outboxd.inbox_group g WHERE g.consumer = unshare_consumer.consumer AND g.role = unshare_consumer.with_role;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO outboxd.audit (action, subject, affected, detail)
    VALUES ('unshare_consumer', unshare_consumer.consumer, 0, jsonb_build_object('role', unshare_consumer.with_role));
    RETURN true;
END $$;

COMMENT ON FUNCTION outboxd.unshare_consumer IS
    'Ends share_consumer() for this role: a message that was received under it is the first again for each login. False: it was not shared.';
