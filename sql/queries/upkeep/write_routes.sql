-- The routes of the configuration in use, for views; what is not among them any more goes.
-- Interleavings: of instances that start together with other routes, those of both may stand until the next start. A
-- deadlock ends one of them, which tries again.
-- $1 topics · $2 positions · $3 channels
-- Locks: the rows changed. Index: route_pkey.
WITH wanted AS (
    SELECT u.topic, u.position, u.channel FROM unnest($1::text[], $2::smallint[], $3::text[]) u(topic, position, channel)
), gone AS (
    DELETE FROM outboxd.route r WHERE NOT EXISTS (SELECT FROM wanted w WHERE w.topic = r.topic AND w.position = r.position)
)
INSERT INTO outboxd.route AS r (topic, position, channel) SELECT w.topic, w.position, w.channel FROM wanted w ORDER BY 1, 2
ON CONFLICT (topic, position) DO UPDATE SET channel = excluded.channel WHERE r.channel <> excluded.channel
