-- Says what is wrong with notify_many()'s arguments and how to mend it; returns if nothing is. The rules of an item are
-- those of notification_log. What does not plainly keep them is put to _reject(), which has the words.
CREATE OR REPLACE FUNCTION outboxd._reject_items(topic text, items jsonb) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    bad  text;
    item record;
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
    BEGIN
        FOR item IN SELECT * FROM outboxd._items(items) i
            WHERE (octet_length(topic) BETWEEN 1 AND 200 AND octet_length(i.recipient) BETWEEN 1 AND 2048
                   AND octet_length(i.payload::text) <= 262144 AND i.headers IS NULL
                   AND coalesce(octet_length(i.dedup_key), 1) BETWEEN 1 AND 512
                   AND coalesce(octet_length(i.ordering_key), 1) BETWEEN 1 AND 512
                   AND coalesce(i.send_at, now()) BETWEEN '0001-01-01+00' AND '9999-12-31+00'
                   AND coalesce(i.expires_at, now()) BETWEEN '0001-01-01+00' AND '9999-12-31+00') IS NOT TRUE
            ORDER BY i.n
        LOOP
            PERFORM outboxd._reject('notify_many: item ' || item.n, topic, item.recipient, item.payload, item.send_at,
                item.dedup_key, item.ordering_key, item.expires_at, item.headers);
        END LOOP;
    EXCEPTION WHEN invalid_datetime_format OR datetime_field_overflow OR invalid_parameter_value THEN
        -- A time that cannot be read. Which item has it shows when they are read one by one.
        FOR item IN SELECT i.value, i.n FROM jsonb_array_elements(items) WITH ORDINALITY i(value, n) LOOP
            BEGIN
                PERFORM FROM outboxd._items(jsonb_build_array(item.value));
            EXCEPTION WHEN data_exception THEN
                RAISE EXCEPTION 'notify_many: item %: %', item.n, SQLERRM USING ERRCODE = SQLSTATE,
                    HINT = 'send_at and expires_at are times, such as "2026-01-31T12:00:00Z".';
            END;
        END LOOP;
        RAISE;
    END;
END $$;
