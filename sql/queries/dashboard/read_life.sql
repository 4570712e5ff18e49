-- What is known of one notification beside its record and why it waits: its attempts, its live work, its route.
-- $1 id
-- Locks: none. Index: attempt_notification, outbox_pkey, route_pkey.
SELECT json_build_object(
    'attempts', (SELECT json_agg(a ORDER BY a.id) FROM (
        SELECT t.* FROM outboxd.attempts t WHERE t.notification_id = $1::bigint ORDER BY t.id DESC LIMIT 100) a),
    'work', (SELECT row_to_json(o) FROM outboxd.outbox o WHERE o.id = $1),
    'route', (SELECT json_agg(r.channel ORDER BY r.position) FROM outboxd.route r, outboxd.notification_log l
               WHERE l.id = $1 AND r.topic = CASE WHEN EXISTS (SELECT FROM outboxd.route o WHERE o.topic = l.topic) THEN l.topic
                                                  ELSE 'default' END)) AS page
