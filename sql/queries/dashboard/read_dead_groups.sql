-- The newest 10,000 dead letters by topic, channel and cause, a page of these groups, the largest first. The cause is the
-- HTTP status, or the error up to its first colon; of a 2xx that was not taken for a delivery the error, whole, or for
-- those who may not see what a provider said up to and with its first colon. _pick_dead() compares with the same
-- expressions, so that a group is retried as it stands here.
-- $1 only groups with this in their topic, channel or cause · $2 $3 $4 $5 the place of the last one of the page before;
-- NULL: from the first on · $6 patterns of LIKE for topics; NULL: all · $7 whether the errors are told whole
-- Locks: none. Index: notification_log_failed, from its end; attempt_notification. 51 groups at most.
WITH newest AS MATERIALIZED (
    SELECT row_number() OVER (ORDER BY l.failed_at DESC) AS number, l.id, l.topic, l.channel, l.http_status, l.failed_at, l.error,
           coalesce(CASE WHEN l.http_status / 100 = 2 THEN coalesce(CASE WHEN NOT $7::bool THEN nullif(left(l.error, strpos(l.error, ':')), '') END, l.error) END,
                    'HTTP ' || l.http_status, nullif(left(split_part(l.error, ':', 1), 120), ''), 'no error') AS cause
      FROM outboxd.notification_log l
     WHERE l.failed_at IS NOT NULL AND ($6::text[] IS NULL OR l.topic LIKE ANY ($6)) ORDER BY l.failed_at DESC LIMIT 10000
), grouped AS MATERIALIZED (
    SELECT n.topic, n.channel, n.cause, max(n.http_status) AS http_status, count(*) AS count, min(n.failed_at) AS first_at,
           max(n.failed_at) AS last_at, max(n.id) AS id_max, min(n.number) AS newest
      FROM newest n GROUP BY n.topic, n.channel, n.cause
), matching AS MATERIALIZED (
    SELECT g.* FROM grouped g WHERE $1::text IS NULL OR position(lower($1) IN lower(concat_ws(' ', g.topic, g.channel, g.cause))) > 0
), listed AS (
    SELECT m.*, json_build_array(-m.count, -m.id_max, 0, '') AS place, l.id AS newest_id, left(l.error, 300) AS error,
           (SELECT left(a.response, 300) FROM outboxd.attempt a WHERE a.notification_id = l.id ORDER BY a.id DESC LIMIT 1) AS response
      FROM (SELECT w.* FROM matching w
             WHERE $2::bigint IS NULL OR (-w.count, -w.id_max, 0, '') > ($2, $3::bigint, $4::bigint, $5::text)
             ORDER BY -w.count, -w.id_max LIMIT 51) m
      JOIN newest l ON l.number = m.newest
     ORDER BY -m.count, -m.id_max
), total AS MATERIALIZED (
    SELECT count(*) AS groups, coalesce(sum(g.count), 0) AS scanned, min(g.first_at) AS since FROM grouped g
)
SELECT json_build_object(
    'total', (SELECT json_build_object('groups', t.groups, 'scanned', t.scanned, 'matching', (SELECT count(*) FROM matching)) FROM total t),
    'since', (SELECT t.since FROM total t),
    'dead', (SELECT sum(t.dead) FROM outboxd._topics t
              WHERE ($6 IS NULL OR t.topic LIKE ANY ($6)) AND (SELECT n.scanned >= 10000 FROM total n)),
    'groups', (SELECT json_agg(l) FROM listed l)) AS page
