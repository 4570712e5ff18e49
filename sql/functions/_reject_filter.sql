-- Refuses a filter that is not an object of known keys, so that a misspelt key never means "all of them".
CREATE OR REPLACE FUNCTION outboxd._reject_filter(what text, filter jsonb, allowed text[]) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    unknown text;
BEGIN
    IF jsonb_typeof(filter) IS DISTINCT FROM 'object' THEN
        RAISE EXCEPTION '%: filter must be a JSON object', what USING ERRCODE = 'invalid_parameter_value',
            HINT = format('Such as {"topic": "orders", "since": "2026-01-31 12:00"}. Keys: %s.', array_to_string(allowed, ', '));
    END IF;
    SELECT string_agg(k, ', ' ORDER BY k) INTO unknown FROM jsonb_object_keys(filter) k WHERE k <> ALL (allowed);
    IF unknown IS NOT NULL THEN
        RAISE EXCEPTION '%: unknown key in filter: %', what, unknown USING ERRCODE = 'invalid_parameter_value',
            HINT = format('Keys: %s.', array_to_string(allowed, ', '));
    END IF;
    SELECT string_agg(e.key, ', ' ORDER BY e.key) INTO unknown FROM jsonb_each(filter) e WHERE jsonb_typeof(e.value) NOT IN ('string', 'number');
    IF unknown IS NOT NULL THEN
        RAISE EXCEPTION '%: % must be a string or a number', what, unknown USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Leave a key out to not filter by it.';
    END IF;
    BEGIN
        PERFORM (filter->>'since')::timestamptz, (filter->>'until')::timestamptz, (filter->>'http_status')::smallint,
                (filter->>'id_max')::bigint;
    EXCEPTION WHEN data_exception THEN
        RAISE EXCEPTION '%: %', what, SQLERRM USING ERRCODE = 'invalid_parameter_value',
            HINT = 'since and until are times, such as "2026-01-31 12:00"; http_status and id_max are numbers.';
    END;
END $$;
