-- Says what is wrong with the arguments of one notification, and how to mend it. Returns if nothing is.
-- `what` names the caller or the item: 'notify', 'notify_many: item 3'.
CREATE OR REPLACE FUNCTION outboxd._reject(
    what text, topic text, recipient text, payload jsonb, send_at timestamptz, dedup_key text, ordering_key text,
    expires_at timestamptz, headers jsonb
) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    bad    text;
    moment timestamptz := clock_timestamp();
    limits record;
    bytes  bigint := octet_length(payload::text);
BEGIN
    SELECT s.payload_bytes_max, s.send_ahead_max INTO limits FROM outboxd.setting s;
    SELECT name INTO bad FROM (VALUES
        (1, 'topic', topic IS NULL), (2, 'recipient', recipient IS NULL), (3, 'payload', payload IS NULL),
        (4, 'send_at', send_at IS NULL)) v(n, name, is_missing)
    WHERE is_missing ORDER BY n LIMIT 1;
    IF bad = 'send_at' THEN
        RAISE EXCEPTION '%: send_at must not be NULL', what USING ERRCODE = 'null_value_not_allowed',
            HINT = 'Leave send_at out to send now.';
    ELSIF bad IS NOT NULL THEN
        RAISE EXCEPTION '%: % must not be NULL', what, bad USING ERRCODE = 'null_value_not_allowed',
            HINT = 'topic, recipient and payload are required.';
    END IF;
    IF octet_length(topic) NOT BETWEEN 1 AND 200 THEN
        RAISE EXCEPTION '%: topic has % bytes', what, octet_length(topic) USING ERRCODE = 'invalid_parameter_value',
            HINT = 'A topic has 1 to 200 bytes.';
    END IF;
    IF length(recipient) NOT BETWEEN 1 AND 4096 THEN
        RAISE EXCEPTION '%: recipient has % characters', what, length(recipient) USING ERRCODE = 'invalid_parameter_value',
            HINT = 'A recipient (device token, phone number, URL …) has 1 to 4096 characters.';
    END IF;
    IF bytes > limits.payload_bytes_max THEN
        RAISE EXCEPTION '%: payload has % bytes, the limit is %', what, bytes, limits.payload_bytes_max
            USING ERRCODE = 'program_limit_exceeded',
            HINT = 'Store the document elsewhere and send a reference, or raise the limit: UPDATE outboxd.setting SET payload_bytes_max = ….';
    END IF;
    IF NOT isfinite(send_at) OR send_at > moment + limits.send_ahead_max THEN
        RAISE EXCEPTION '%: send_at % is %', what, send_at,
            CASE WHEN isfinite(send_at) THEN 'too far ahead' ELSE 'not a time' END USING ERRCODE = 'invalid_parameter_value',
            HINT = format('send_at may be at most %s ahead; leave it out to send now.', limits.send_ahead_max);
    END IF;
    IF NOT isfinite(expires_at) OR expires_at <= greatest(send_at, moment) THEN
        RAISE EXCEPTION '%: expires_at % is %', what, expires_at, CASE WHEN NOT isfinite(expires_at) THEN 'not a time'
            WHEN expires_at <= send_at THEN 'not after send_at' ELSE 'past' END USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Past expires_at nothing is sent; leave it out for a notification that does not expire.';
    END IF;
    SELECT format('%s has %s bytes', name, octet_length(value)) INTO bad
      FROM (VALUES (1, 'dedup_key', dedup_key), (2, 'ordering_key', ordering_key)) v(n, name, value)
     WHERE octet_length(value) NOT BETWEEN 1 AND 512 ORDER BY n LIMIT 1;
    IF bad IS NOT NULL THEN
        RAISE EXCEPTION '%: %', what, bad USING ERRCODE = 'invalid_parameter_value',
            HINT = 'A key has 1 to 512 bytes; hash longer keys, pass NULL for none.';
    END IF;
    PERFORM outboxd._reject_headers(what, headers);
END $$;
