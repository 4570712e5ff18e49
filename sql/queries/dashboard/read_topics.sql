-- Topics that have work, a route, a pause or traffic in the last hour: what waits, what was done, where it goes by the routes
-- of the instance that started last, and which running instances have no route for it.
-- $1 patterns of LIKE for topics, NULL: all. Locks: none. Index: the primary keys of the statistics; 200 rows at most.
WITH states AS MATERIALIZED (
    SELECT q.topic, q.status, q.count, extract(epoch FROM q.oldest_age)::float8 AS oldest_s FROM outboxd.queue_state q
), done AS MATERIALIZED (
    SELECT t.topic, sum(t.sent)::bigint AS sent, sum(t.failed)::bigint AS failed, sum(t.retried)::bigint AS retried
      FROM outboxd.statistics_topic t WHERE t.minute > now() - interval '1 hour' GROUP BY 1
), spent AS MATERIALIZED (
    SELECT l.topic, l.notify_to_sent_p50_ms AS p50_ms, l.notify_to_sent_p99_ms AS p99_ms FROM outboxd.latency l
), carrier AS MATERIALIZED (
    SELECT c.id, c.host, c.topics FROM outboxd._carrier c
), routed AS MATERIALIZED (
    SELECT r.published, r.called FROM outboxd._routed r
), known AS (
    SELECT s.topic FROM states s UNION SELECT d.topic FROM done d
    UNION SELECT p.name FROM outboxd.topic p WHERE p.paused_at IS NOT NULL
    UNION SELECT r.topic FROM carrier c CROSS JOIN LATERAL unnest(c.topics) r(topic) WHERE r.topic <> 'default'
), listed AS (
    SELECT k.topic, p.paused_at,
           (SELECT s.count FROM states s WHERE s.topic = k.topic AND s.status = 'PENDING') AS pending,
           (SELECT s.count FROM states s WHERE s.topic = k.topic AND s.status = 'QUEUED') AS queued,
           (SELECT s.count FROM states s WHERE s.topic = k.topic AND s.status = 'PROCESSING') AS processing,
           (SELECT s.count FROM states s WHERE s.topic = k.topic AND s.status = 'FAILED') AS dead,
           (SELECT max(s.oldest_s) FROM states s WHERE s.topic = k.topic AND s.status IN ('QUEUED', 'PROCESSING')) AS oldest_s,
           d.sent, d.failed, d.retried, l.p50_ms, l.p99_ms,
           (SELECT json_agg(r.channel ORDER BY r.position) FROM outboxd.route r
             WHERE r.topic = CASE WHEN EXISTS (SELECT FROM outboxd.route o WHERE o.topic = k.topic) THEN k.topic ELSE 'default' END) AS route,
           -- Nobody publishes it, or nobody calls for it.
           (SELECT NOT r.published && ARRAY[k.topic, 'default'] OR NOT r.called && ARRAY[k.topic, 'default'] FROM routed r) AS is_routeless,
           (SELECT json_build_object('instances', count(c.topics), 'lacking', count(*) FILTER (WHERE c.lacks),
                                     'names', array_to_string((array_agg(format('%s on %s', c.id, c.host) ORDER BY c.id) FILTER (WHERE c.lacks))[1:5], ', '))
              FROM (SELECT w.id, w.host, w.topics, coalesce(NOT w.topics && ARRAY[k.topic, 'default'], false) AS lacks FROM carrier w) c)
               AS routed
      FROM known k LEFT JOIN outboxd.topic p ON p.name = k.topic
      LEFT JOIN done d ON d.topic = k.topic LEFT JOIN spent l ON l.topic = k.topic
     WHERE $1::text[] IS NULL OR k.topic LIKE ANY ($1)
     ORDER BY p.paused_at IS NULL, k.topic LIMIT 200
)
SELECT json_build_object('topics', (SELECT json_agg(l) FROM listed l)) AS page
