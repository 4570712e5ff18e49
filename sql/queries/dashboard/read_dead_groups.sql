-- The newest dead letters by cause: topic, channel and class of error. The class is the HTTP status, or the error up to its
-- first colon. `error_like` is the pattern that retry_where takes for a class without a status.
-- $1 how many dead letters to look at
-- Locks: none. Index: notification_log_failed, from its end.
WITH newest AS (
    SELECT l.id, l.topic, l.channel, l.http_status, l.failed_at,
           CASE WHEN l.http_status IS NULL THEN left(split_part(coalesce(l.error, ''), ':', 1), 120) END AS word, l.error
      FROM outboxd.notification_log l
     WHERE l.failed_at IS NOT NULL ORDER BY l.failed_at DESC LIMIT $1::bigint
), grouped AS (
    SELECT n.topic, n.channel, n.http_status, n.word, count(*) AS count, min(n.failed_at) AS first_at, max(n.failed_at) AS last_at,
           (array_agg(n.id ORDER BY n.failed_at DESC))[1:3] AS ids, (array_agg(n.error ORDER BY n.failed_at DESC))[1] AS error
      FROM newest n GROUP BY 1, 2, 3, 4 ORDER BY 5 DESC, 7 DESC LIMIT 100
)
SELECT json_build_object(
    'looked', (SELECT count(*) FROM newest),
    'since', (SELECT min(n.failed_at) FROM newest n),
    'groups', (SELECT json_agg(json_build_object(
        'topic', g.topic, 'channel', g.channel, 'http_status', g.http_status, 'word', g.word, 'count', g.count,
        'first_at', g.first_at, 'last_at', g.last_at, 'ids', g.ids, 'error', left(g.error, 300),
        'error_like', CASE WHEN g.http_status IS NULL AND g.word <> ''
                           THEN replace(replace(replace(g.word, '\', '\\'), '%', '\%'), '_', '\_') || '%' END)) FROM grouped g)) AS page
