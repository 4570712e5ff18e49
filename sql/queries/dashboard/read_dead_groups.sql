-- The newest 10,000 dead letters by topic, channel and cause, a page of these groups, the largest first. The cause is the
-- HTTP status, or the error up to its first colon; _pick_dead() compares with the same expression, so that a group is
-- retried as it stands here.
-- $1 only groups with this in their topic, channel or cause · $2, $3, $4, $5 the place of the last one of the page before;
-- NULL: from the first on
-- Locks: none. Index: notification_log_failed, from its end; 51 groups at most.
WITH newest AS (
    SELECT l.id, l.topic, l.channel, l.http_status, l.failed_at, l.error,
           coalesce('HTTP ' || l.http_status, nullif(left(split_part(l.error, ':', 1), 120), ''), 'no error') AS cause
      FROM outboxd.notification_log l
     WHERE l.failed_at IS NOT NULL ORDER BY l.failed_at DESC LIMIT 10000
), grouped AS MATERIALIZED (
    SELECT n.topic, n.channel, n.cause, max(n.http_status) AS http_status, count(*) AS count, min(n.failed_at) AS first_at,
           max(n.failed_at) AS last_at, max(n.id) AS id_max, concat_ws(' ', n.topic, coalesce(n.channel, ''), n.cause) AS name
      FROM newest n GROUP BY n.topic, n.channel, n.cause
), listed AS (
    SELECT g.*, json_build_array(-g.count, -g.id_max, 0, g.name) AS place, l.id AS newest_id, left(l.error, 300) AS error
      FROM (SELECT w.* FROM grouped w
             WHERE ($1::text IS NULL OR position(lower($1) IN lower(w.name)) > 0)
               AND ($2::bigint IS NULL OR (-w.count, -w.id_max, 0, w.name COLLATE "C") > ($2, $3::bigint, $4::bigint, $5::text COLLATE "C"))
             ORDER BY -w.count, -w.id_max, w.name COLLATE "C" LIMIT 51) g
      JOIN LATERAL (SELECT n.id, n.error FROM newest n WHERE n.topic = g.topic AND n.channel IS NOT DISTINCT FROM g.channel AND n.cause = g.cause
                     ORDER BY n.failed_at DESC LIMIT 1) l ON true
     ORDER BY -g.count, -g.id_max, g.name COLLATE "C"
)
SELECT json_build_object(
    'total', (SELECT json_build_object('groups', count(*), 'scanned', coalesce(sum(g.count), 0),
                                       'matching', count(*) FILTER (WHERE $1 IS NULL OR position(lower($1) IN lower(g.name)) > 0)) FROM grouped g),
    'since', (SELECT min(g.first_at) FROM grouped g),
    'dead', (SELECT sum(t.dead) FROM outboxd._topics t WHERE (SELECT sum(g.count) >= 10000 FROM grouped g)),
    'groups', (SELECT json_agg(l) FROM listed l)) AS page
