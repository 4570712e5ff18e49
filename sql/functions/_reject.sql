-- Says what is wrong with the arguments of one notification, and how to mend it. Returns if nothing is. The rules are
-- those of notification_log's constraints.
-- `what` names the caller or the item: 'notify', 'notify_many: item 3'.
CREATE OR REPLACE FUNCTION outboxd._reject(
    what text, topic text, recipient text, payload jsonb, send_at timestamptz, dedup_key text, ordering_key text,
    expires_at timestamptz, headers jsonb
) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    bad   text;
    bytes bigint := octet_length(payload::text);
BEGIN
    bad := CASE WHEN topic IS NULL THEN 'topic' WHEN recipient IS NULL THEN 'recipient' WHEN payload IS NULL THEN 'payload' END;
    IF bad IS NOT NULL THEN
        RAISE EXCEPTION '%: % must not be NULL', what, bad USING ERRCODE = 'null_value_not_allowed',
            HINT = 'topic, recipient and payload are required.';
    END IF;
    IF octet_length(topic) NOT BETWEEN 1 AND 200 THEN
        RAISE EXCEPTION '%: topic has % bytes', what, octet_length(topic) USING ERRCODE = 'check_violation',
            HINT = 'A topic has 1 to 200 bytes.';
    END IF;
    IF octet_length(recipient) NOT BETWEEN 1 AND 2048 THEN
        RAISE EXCEPTION '%: recipient has % bytes', what, octet_length(recipient) USING ERRCODE = 'check_violation',
            HINT = 'A recipient (device token, phone number, URL …) has 1 to 2048 bytes.';
    END IF;
    IF bytes > 262144 THEN
        RAISE EXCEPTION '%: payload has % bytes, the limit is 262144', what, bytes USING ERRCODE = 'check_violation',
            HINT = 'Store the document elsewhere and send a reference.';
    END IF;
    bad := CASE WHEN send_at NOT BETWEEN '0001-01-01+00' AND '9999-12-31+00' THEN format('send_at %s', send_at)
                WHEN expires_at NOT BETWEEN '0001-01-01+00' AND '9999-12-31+00' THEN format('expires_at %s', expires_at) END;
    IF bad IS NOT NULL THEN
        RAISE EXCEPTION '%: % is not a time in the years 1 to 9999', what, bad USING ERRCODE = 'check_violation',
            HINT = 'Leave send_at out to send now, expires_at for a notification that does not expire.';
    END IF;
    bad := CASE WHEN octet_length(dedup_key) NOT BETWEEN 1 AND 512 THEN format('dedup_key has %s bytes', octet_length(dedup_key))
                WHEN octet_length(ordering_key) NOT BETWEEN 1 AND 512 THEN format('ordering_key has %s bytes', octet_length(ordering_key)) END;
    IF bad IS NOT NULL THEN
        RAISE EXCEPTION '%: %', what, bad USING ERRCODE = 'check_violation',
            HINT = 'A key has 1 to 512 bytes; hash longer keys, pass NULL for none.';
    END IF;
    PERFORM outboxd._reject_headers(what, headers);
END $$;
