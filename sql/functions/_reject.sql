-- Says what is wrong with the arguments of one notification, and how to mend it. Returns if nothing is.
-- `what` names the caller or the item: 'notify', 'notify_many: item 3'.
CREATE OR REPLACE FUNCTION outboxd._reject(
    what text, topic text, recipient text, payload jsonb, send_at timestamptz, dedup_key text, ordering_key text,
    expires_at timestamptz, headers jsonb, payload_bytes_max integer, send_ahead_max interval
) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    bad text;
BEGIN
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
    IF length(topic) NOT BETWEEN 1 AND 200 THEN
        RAISE EXCEPTION '%: topic has % characters', what, length(topic) USING ERRCODE = 'invalid_parameter_value',
            HINT = 'A topic has 1 to 200 characters.';
    END IF;
    IF length(recipient) NOT BETWEEN 1 AND 4096 THEN
        RAISE EXCEPTION '%: recipient has % characters', what, length(recipient) USING ERRCODE = 'invalid_parameter_value',
            HINT = 'A recipient (device token, phone number, URL …) has 1 to 4096 characters.';
    END IF;
    IF pg_column_size(payload) > payload_bytes_max THEN
        RAISE EXCEPTION '%: payload has % bytes, the limit is %', what, pg_column_size(payload), payload_bytes_max
            USING ERRCODE = 'program_limit_exceeded',
            HINT = 'Store the document elsewhere and send a reference, or raise the limit: UPDATE outboxd.setting SET payload_bytes_max = ….';
    END IF;
    IF NOT isfinite(send_at) OR send_at > now() + send_ahead_max THEN
        RAISE EXCEPTION '%: send_at % is too far ahead', what, send_at USING ERRCODE = 'invalid_parameter_value',
            HINT = format('send_at may be at most %s ahead.', send_ahead_max);
    END IF;
    IF NOT isfinite(expires_at) OR expires_at <= greatest(send_at, now()) THEN
        RAISE EXCEPTION '%: expires_at % is not after send_at', what, expires_at USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Past expires_at nothing is sent; leave it out for a notification that does not expire.';
    END IF;
    SELECT name INTO bad FROM (VALUES ('dedup_key', dedup_key), ('ordering_key', ordering_key)) v(name, value)
    WHERE length(value) NOT BETWEEN 1 AND 512 LIMIT 1;
    IF bad IS NOT NULL THEN
        RAISE EXCEPTION '%: % has % characters', what, bad,
            length(CASE bad WHEN 'dedup_key' THEN dedup_key ELSE ordering_key END) USING ERRCODE = 'invalid_parameter_value',
            HINT = format('%s has 1 to 512 characters; hash longer keys.', bad);
    END IF;
    PERFORM outboxd._reject_headers(what, headers);
END $$;
