-- Stores the response a repeat of (consumer, message_id) will get. Storing the same again changes nothing. The receipt is
-- the login's own, or of those it shares the consumer with.
-- Locks: the receipt. Index: inbox_pkey; inbox_group_pkey.
CREATE OR REPLACE FUNCTION outboxd.respond(consumer text, message_id text, response jsonb) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    given  jsonb := coalesce(respond.response, 'null');
    stored jsonb;
    mine   text := outboxd._receipts_of(respond.consumer);
    bytes  integer := octet_length(given::text);
BEGIN
    IF bytes > 262144 THEN
        RAISE EXCEPTION 'respond: response has % bytes, the limit is 262144', bytes
            USING ERRCODE = 'check_violation', HINT = 'Store the document elsewhere and keep a reference to it.';
    END IF;
    UPDATE outboxd.inbox i SET response = given, responded_at = clock_timestamp()
     WHERE i.consumer = respond.consumer AND i.message_id = respond.message_id AND i.owner = mine AND i.response IS NULL;
    IF FOUND THEN
        RETURN;
    END IF;
    SELECT i.response INTO stored FROM outboxd.inbox i
     WHERE i.consumer = respond.consumer AND i.message_id = respond.message_id AND i.owner = mine;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'respond: % never received message %', quote_nullable(respond.consumer), quote_nullable(respond.message_id)
            USING ERRCODE = 'no_data_found', HINT = 'Call outboxd.receive(consumer, message_id) first, in the same transaction. Logins share receipts where outboxd.share_consumer() says so.';
    END IF;
    IF stored IS DISTINCT FROM given THEN
        RAISE EXCEPTION 'respond: another response is stored for message %', quote_nullable(respond.message_id)
            USING ERRCODE = 'unique_violation', HINT = 'The first response stands; a repeat must return it.';
    END IF;
END $$;

COMMENT ON FUNCTION outboxd.respond IS 'Store the response that repeats of this message will get from receive().';
