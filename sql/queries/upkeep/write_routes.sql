-- The routes of the configuration in use, for views; what is not among them any more goes.
-- Interleavings: instances that start together write one after the other; those of the last stand.
-- $1 topics · $2 positions · $3 channels
-- Locks: the rows changed. Index: route_pkey.
WITH wanted AS (
    SELECT u.topic, u.position, u.channel FROM unnest($1::text[], $2::smallint[], $3::text[]) u(topic, position, channel)
), gone AS (
    DELETE FROM outboxd.route r WHERE NOT EXISTS (SELECT FROM wanted w WHERE w.topic = r.topic AND w.position = r.position)
)
INSERT INTO outboxd.route AS r (topic, position, channel) SELECT w.topic, w.position, w.channel FROM wanted w ORDER BY 1, 2
ON CONFLICT (topic, position) DO UPDATE SET channel = excluded.channel WHERE r.channel <> excluded.channel
