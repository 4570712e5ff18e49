-- Appends the events of a topic again that were recorded since then, in order; returns how many. Consumers that use
-- receive() pass over what they have seen. Groups that were cut, and get all of it again by this, are no longer told.
CREATE OR REPLACE FUNCTION outboxd.replay_events(topic text, since timestamptz) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    affected bigint;
BEGIN
    IF replay_events.topic IS NULL OR replay_events.since IS NULL THEN
        RAISE EXCEPTION 'replay_events: % must not be NULL', CASE WHEN replay_events.topic IS NULL THEN 'topic' ELSE 'since' END
            USING ERRCODE = 'null_value_not_allowed', HINT = 'Name the topic and the time from which on to append again.';
    END IF;
    INSERT INTO outboxd.event_outbox (event_id, topic)
    SELECT e.id, e.topic FROM outboxd.event e
     WHERE e.topic = replay_events.topic AND e.created_at >= replay_events.since ORDER BY e.id;
    GET DIAGNOSTICS affected = ROW_COUNT;
    UPDATE outboxd.event_group g SET cut_at = NULL, cut_from = NULL, cut_events = 0
     WHERE g.topic = replay_events.topic AND coalesce(g.cut_from, g.cut_at) >= replay_events.since;
    INSERT INTO outboxd.audit (action, subject, affected, detail)
    VALUES ('replay_events', replay_events.topic, affected, jsonb_build_object('since', replay_events.since));
    PERFORM outboxd._ring();
    RETURN affected;
END $$;

COMMENT ON FUNCTION outboxd.replay_events IS
    'Append the events of a topic to its stream again, from a time on; returns how many.';
