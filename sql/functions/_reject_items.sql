-- Says what is wrong with the shape of notify_many()'s arguments. Returns if nothing is.
CREATE OR REPLACE FUNCTION outboxd._reject_items(topic text, items jsonb) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    bad text;
BEGIN
    IF topic IS NULL OR items IS NULL THEN
        RAISE EXCEPTION 'notify_many: % must not be NULL', CASE WHEN topic IS NULL THEN 'topic' ELSE 'items' END
            USING ERRCODE = 'null_value_not_allowed', HINT = 'Pass a topic and a JSON array of objects.';
    END IF;
    IF jsonb_typeof(items) <> 'array' THEN
        RAISE EXCEPTION 'notify_many: items is a JSON %, not an array', jsonb_typeof(items)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Pass [{"recipient": "…", "payload": {…}}, …].';
    END IF;
    SELECT CASE WHEN jsonb_typeof(i.value) <> 'object' THEN format('item %s is a JSON %s, not an object', i.n, jsonb_typeof(i.value))
                ELSE format('item %s: there is no field %s', i.n, quote_ident(f.key)) END INTO bad
      FROM jsonb_array_elements(items) WITH ORDINALITY i(value, n)
      CROSS JOIN LATERAL jsonb_object_keys(CASE jsonb_typeof(i.value) WHEN 'object' THEN i.value ELSE '{"": 1}' END) f(key)
     WHERE f.key NOT IN ('recipient', 'payload', 'send_at', 'dedup_key', 'ordering_key', 'expires_at', 'headers')
     ORDER BY i.n, f.key LIMIT 1;
    IF bad IS NOT NULL THEN
        RAISE EXCEPTION 'notify_many: %', bad USING ERRCODE = 'invalid_parameter_value',
            HINT = 'An item is an object with recipient, payload and, where wanted, send_at, dedup_key, ordering_key, expires_at, headers.';
    END IF;
END $$;
