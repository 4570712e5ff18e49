-- Appends the events of a topic again that were recorded since then, in order, 100,000 at a time; returns how many.
-- What waits stands before later events of every topic, and a stream keeps no more than that by default, so a longer
-- replay would cut its own readers. Where more is left a notice says from when on to call again. Consumers that use
-- receive() pass over what they have seen. Groups that were cut, and get all of it again by this, are no longer told;
-- of the others is told from when on they still lack events.
-- Locks: the groups of the topic. Index: event_topic.
CREATE OR REPLACE FUNCTION outboxd.replay_events(topic text, since timestamptz) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    rows_max CONSTANT integer := 100000;
    affected bigint;
    last_id  bigint;
    next_at  timestamptz;
BEGIN
    IF replay_events.topic IS NULL OR replay_events.since IS NULL THEN
        RAISE EXCEPTION 'replay_events: % must not be NULL', CASE WHEN replay_events.topic IS NULL THEN 'topic' ELSE 'since' END
            USING ERRCODE = 'null_value_not_allowed', HINT = 'Name the topic and the time from which on to append again.';
    END IF;
    WITH again AS (
        INSERT INTO outboxd.event_outbox (event_id, topic)
        SELECT e.id, e.topic FROM outboxd.event e
         WHERE e.topic = replay_events.topic AND e.created_at >= replay_events.since ORDER BY e.id LIMIT rows_max
        RETURNING event_id
    )
    SELECT count(*), max(a.event_id) INTO affected, last_id FROM again a;
    IF affected = rows_max THEN
        -- Ids and times are not in quite the same order.
        SELECT min(e.created_at) INTO next_at FROM outboxd.event e
         WHERE e.topic = replay_events.topic AND e.id > last_id AND e.created_at >= replay_events.since;
    END IF;
    IF next_at IS NOT NULL THEN
        RAISE NOTICE 'replay_events: % events are appended again, and there are more', affected
            USING HINT = format('Once they are read: SELECT outboxd.replay_events(%L, %L)', replay_events.topic, next_at);
    END IF;
    UPDATE outboxd.event_group g
       SET cut_at = CASE WHEN next_at IS NOT NULL THEN g.cut_at END, cut_from = next_at,
           cut_events = CASE WHEN next_at IS NOT NULL THEN greatest(g.cut_events - affected, 1) ELSE 0 END
     WHERE g.topic = replay_events.topic AND coalesce(g.cut_from, g.cut_at) >= replay_events.since
       AND coalesce(next_at > coalesce(g.cut_from, g.cut_at), true);
    INSERT INTO outboxd.audit (action, subject, affected, detail)
    VALUES ('replay_events', replay_events.topic, affected, jsonb_build_object('since', replay_events.since));
    PERFORM outboxd._ring();
    RETURN affected;
END $$;

COMMENT ON FUNCTION outboxd.replay_events IS
    'Append the events of a topic to its stream again, from a time on, 100,000 at a time; returns how many.';
