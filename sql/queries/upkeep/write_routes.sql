-- The routes of the configuration in use, for views. Where instances know different ones of a topic, those of the last
-- that started stand. What no running instance has a route for any more goes; a topic of another's stays, although this
-- one lacks it.
-- Interleavings: instances that start together have told of their topics at their registration, so neither takes the
-- other's away. An instance whose heartbeat was late, and whose routes went, finds out by its next report and tells of
-- them again. A deadlock ends one of them, which tries again.
-- $1 topics · $2 positions · $3 channels · $4 instance
-- Locks: the rows changed. Index: route_pkey; instance_report_pkey.
WITH wanted AS (
    SELECT u.topic, u.position, u.channel FROM unnest($1::text[], $2::smallint[], $3::text[]) u(topic, position, channel)
), others AS (
    SELECT DISTINCT t.topic
      FROM outboxd.instance i JOIN outboxd.instance_report r ON r.instance = i.id CROSS JOIN LATERAL unnest(r.topics) t(topic)
     WHERE i.id <> $4::int AND i.stopped_at IS NULL AND i.heartbeat_at >= now() - i.ttl AND NOT t.topic = ANY ($1::text[])
), gone AS (
    DELETE FROM outboxd.route r
     WHERE NOT EXISTS (SELECT FROM wanted w WHERE w.topic = r.topic AND w.position = r.position)
       AND NOT EXISTS (SELECT FROM others o WHERE o.topic = r.topic)
)
INSERT INTO outboxd.route AS r (topic, position, channel) SELECT w.topic, w.position, w.channel FROM wanted w ORDER BY 1, 2
ON CONFLICT (topic, position) DO UPDATE SET channel = excluded.channel WHERE r.channel <> excluded.channel
