-- The newest 10,000 dead letters by topic, channel and cause. The cause is the HTTP status, or the error up to its
-- first colon; _pick_dead() compares with the same expression, so that a group is retried as it stands here.
-- $1 patterns of LIKE for topics, NULL: all. Locks: none. Index: notification_log_failed, from its end; attempt_notification.
WITH newest AS (
    SELECT l.id, l.topic, l.channel, l.http_status, l.failed_at, l.error,
           coalesce('HTTP ' || l.http_status, nullif(left(split_part(l.error, ':', 1), 120), ''), 'no error') AS cause
      FROM outboxd.notification_log l
     WHERE l.failed_at IS NOT NULL AND ($1::text[] IS NULL OR l.topic LIKE ANY ($1)) ORDER BY l.failed_at DESC LIMIT 10000
), grouped AS (
    SELECT n.topic, n.channel, n.cause, max(n.http_status) AS http_status, count(*) AS count, min(n.failed_at) AS first_at,
           max(n.failed_at) AS last_at, (array_agg(n.id ORDER BY n.failed_at DESC))[1:3] AS ids,
           (array_agg(n.error ORDER BY n.failed_at DESC))[1] AS error
      FROM newest n GROUP BY 1, 2, 3 ORDER BY count(*) DESC, max(n.failed_at) DESC LIMIT 100
)
SELECT json_build_object(
    'scanned', (SELECT count(*) FROM newest),
    'since', (SELECT min(n.failed_at) FROM newest n),
    'groups', (SELECT json_agg(json_build_object(
        'topic', g.topic, 'channel', g.channel, 'cause', g.cause, 'http_status', g.http_status, 'count', g.count,
        'first_at', g.first_at, 'last_at', g.last_at, 'ids', g.ids, 'error', left(g.error, 300),
        'response', (SELECT left(a.response, 300) FROM outboxd.attempt a WHERE a.notification_id = g.ids[1] ORDER BY a.id DESC LIMIT 1))) FROM grouped g)) AS page
