-- Stops a topic on all instances: relays publish nothing of it, and what is already in the queue goes back at the
-- claim. Calls under way finish. A topic that nobody knows is paused too, with a notice: it may be a slip of the pen.
-- Over HTTP, where nobody sees a notice, it is refused.
-- Locks: the topic's row. Index: topic_pkey, route_pkey, outbox_fresh, outbox_due, notification_log_due.
CREATE OR REPLACE FUNCTION outboxd.pause(topic text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF (octet_length(pause.topic) BETWEEN 1 AND 200) IS NOT TRUE THEN
        RAISE EXCEPTION 'pause: topic must have 1 to 200 bytes' USING ERRCODE = 'invalid_parameter_value',
            HINT = 'outboxd.queue_state lists the topics with work.';
    END IF;
    IF NOT EXISTS (SELECT FROM outboxd.route r WHERE r.topic = pause.topic)
       AND NOT EXISTS (SELECT FROM outboxd._carrier c WHERE pause.topic = ANY (c.topics))
       AND NOT EXISTS (SELECT FROM outboxd.schedule s WHERE s.topic = pause.topic)
       AND NOT EXISTS (SELECT FROM outboxd.statistics_topic s WHERE s.topic = pause.topic)
       AND NOT EXISTS (SELECT FROM outboxd.snapshot_count n WHERE n.topic = pause.topic)
       AND NOT EXISTS (SELECT FROM outboxd.outbox o WHERE o.topic = pause.topic AND o.ordering_key IS NULL AND o.retry_at IS NULL)
       AND NOT EXISTS (SELECT FROM outboxd.outbox o WHERE o.topic = pause.topic AND o.retry_at IS NOT NULL)
       AND NOT EXISTS (SELECT FROM outboxd.notification_log l WHERE l.topic = pause.topic AND l.due_at IS NOT NULL)
       -- Statistics are written by the minute, so a topic whose first has just been sent is found here.
       AND NOT EXISTS (SELECT FROM (SELECT l.topic FROM outboxd.notification_log l ORDER BY l.id DESC LIMIT 1000) l WHERE l.topic = pause.topic) THEN
        IF current_setting('outboxd.token', true) <> '' THEN
            RAISE EXCEPTION 'nobody knows topic %: no route and no schedule names it, and nothing of it waits or was sent lately',
                quote_literal(pause.topic) USING ERRCODE = 'no_data_found', HINT = 'SELECT outboxd.pause(topic) pauses it all the same.';
        END IF;
        RAISE NOTICE 'topic % is paused, but nobody knows it: no route and no schedule names it, and nothing of it waits or was sent lately',
            quote_literal(pause.topic) USING HINT = 'Mistyped? outboxd.queue_state lists topics with work; outboxd.resume(topic) undoes it.';
    END IF;
    INSERT INTO outboxd.topic AS t (name, paused_at) VALUES (pause.topic, clock_timestamp())
    ON CONFLICT (name) DO UPDATE SET paused_at = coalesce(t.paused_at, excluded.paused_at);
    INSERT INTO outboxd.audit (action, subject, affected) VALUES ('pause', pause.topic, 1);
    PERFORM pg_notify('outboxd', 'control');
END $$;

COMMENT ON FUNCTION outboxd.pause IS
    'Stop sending a topic, on all instances within a second. A notice tells if nobody knows a topic of that name.';
