-- Says what is wrong with a cron expression as far as its form goes: five fields, known characters, numbers in their
-- range. Instances read it with a full parser and show in outboxd.schedules what that refuses.
CREATE OR REPLACE FUNCTION outboxd._reject_cron(what text, cron text) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    hint   text := 'Five fields: minute hour day-of-month month day-of-week, e.g. ''0 9 * * *''; or @hourly, @daily, @weekly, @monthly, @yearly.';
    fields text[] := regexp_split_to_array(trim(_reject_cron.cron), '[[:space:]]+');
    names  text[] := ARRAY['minute', 'hour', 'day of month', 'month', 'day of week'];
    lows   integer[] := ARRAY[0, 0, 1, 1, 0];
    highs  integer[] := ARRAY[59, 23, 31, 12, 7];
    wrong  text;
BEGIN
    IF _reject_cron.cron ~* '^[[:space:]]*@(hourly|daily|midnight|weekly|monthly|yearly|annually)[[:space:]]*$' THEN
        RETURN;
    ELSIF cardinality(fields) IS DISTINCT FROM 5 THEN
        RAISE EXCEPTION '%: cron % has % fields', what, quote_nullable(_reject_cron.cron), coalesce(cardinality(fields), 0)
            USING ERRCODE = 'invalid_parameter_value', HINT = hint;
    END IF;
    FOR i IN 1..5 LOOP
        IF fields[i] !~* '^[0-9a-z*?,/#+-]+$' OR fields[i] ~ '(^|,)(,|$)|//|--|/$|-$' THEN
            RAISE EXCEPTION '%: cron has no valid %: %', what, names[i], fields[i]
                USING ERRCODE = 'invalid_parameter_value', HINT = hint;
        END IF;
        SELECT m[1] INTO wrong FROM regexp_matches(regexp_replace(fields[i], '[/#][0-9]+', '', 'g'), '[0-9]+', 'g') m
         WHERE m[1]::numeric NOT BETWEEN lows[i] AND highs[i] LIMIT 1;
        IF wrong IS NOT NULL THEN
            RAISE EXCEPTION '%: cron''s % goes from % to %, not to %', what, names[i], lows[i], highs[i], wrong
                USING ERRCODE = 'invalid_parameter_value', HINT = hint;
        END IF;
    END LOOP;
END $$;
