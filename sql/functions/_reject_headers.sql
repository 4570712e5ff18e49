-- Headers are NULL or an object of strings, of at most 16 KiB as text.
CREATE OR REPLACE FUNCTION outboxd._reject_headers(what text, headers jsonb) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    bad   text;
    bytes integer := octet_length(headers::text);
BEGIN
    IF headers IS NULL THEN
        RETURN;
    END IF;
    IF jsonb_typeof(headers) <> 'object' THEN
        RAISE EXCEPTION '%: headers is a JSON %, not an object', what, jsonb_typeof(headers)
            USING ERRCODE = 'check_violation', HINT = 'Pass an object of strings: {"traceparent": "00-…"}.';
    END IF;
    SELECT h.key INTO bad FROM jsonb_each(headers) h WHERE jsonb_typeof(h.value) <> 'string' LIMIT 1;
    IF bad IS NOT NULL THEN
        RAISE EXCEPTION '%: header % is not a string', what, quote_ident(bad)
            USING ERRCODE = 'check_violation', HINT = 'Pass an object of strings: {"traceparent": "00-…"}.';
    END IF;
    IF bytes > 16384 THEN
        RAISE EXCEPTION '%: headers have % bytes, the limit is 16384', what, bytes
            USING ERRCODE = 'check_violation', HINT = 'Headers are for a trace and a few names; put the rest into the payload.';
    END IF;
END $$;
