-- A domain event for the app's own consumers: kept in Postgres for its retention and appended to the Redis
-- stream of its topic, in order per key. It asks nobody whether there is a Redis: without one the event waits, and
-- events_waiting and health say so.
CREATE OR REPLACE FUNCTION outboxd.publish(topic text, key text, payload jsonb, headers jsonb DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    bad    text := CASE WHEN publish.topic IS NULL THEN 'topic' WHEN publish.key IS NULL THEN 'key'
                        WHEN publish.payload IS NULL THEN 'payload' END;
    bytes  bigint := octet_length(publish.payload::text);
    new_id bigint;
BEGIN
    IF bad IS NOT NULL THEN
        RAISE EXCEPTION 'publish: % must not be NULL', bad USING ERRCODE = 'null_value_not_allowed',
            HINT = 'topic, key and payload are required.';
    END IF;
    IF octet_length(publish.topic) NOT BETWEEN 1 AND 200 THEN
        RAISE EXCEPTION 'publish: topic has % bytes', octet_length(publish.topic)
            USING ERRCODE = 'check_violation', HINT = 'A topic has 1 to 200 bytes.';
    END IF;
    IF octet_length(publish.key) NOT BETWEEN 1 AND 512 THEN
        RAISE EXCEPTION 'publish: key has % bytes', octet_length(publish.key)
            USING ERRCODE = 'check_violation', HINT = 'A key has 1 to 512 bytes; hash longer keys.';
    END IF;
    IF bytes > 262144 THEN
        RAISE EXCEPTION 'publish: payload has % bytes, the limit is 262144', bytes
            USING ERRCODE = 'check_violation', HINT = 'Store the document elsewhere and send a reference.';
    END IF;
    PERFORM outboxd._reject_headers('publish', publish.headers);

    INSERT INTO outboxd.event (topic, key, payload, headers)
    VALUES (publish.topic, publish.key, publish.payload, publish.headers) RETURNING id INTO new_id;
    INSERT INTO outboxd.event_outbox (event_id, topic) VALUES (new_id, publish.topic);
    PERFORM outboxd._ring();
    RETURN new_id;
END $$;

COMMENT ON FUNCTION outboxd.publish IS
    'Record a domain event in the current transaction; it is appended to the Redis stream of its topic, in order per key.';
