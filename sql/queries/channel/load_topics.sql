-- The topics that an operator paused, and, if some other worker that shares our queue lacks routes, the topics that all
-- of them have: whoever has others keeps those to itself. One that has not reported its routes yet, or has `default`,
-- lacks none; one with the same routes as we have, neither. A last row without a topic says that some do.
-- $1 our own number
-- Locks: none. Index: instance_report_pkey, the tables are small.
WITH lacking AS (
    SELECT r.topics FROM outboxd.instance i JOIN outboxd.instance_report r ON r.instance = i.id
     WHERE i.id <> $1::int AND i.stopped_at IS NULL AND i.heartbeat_at >= now() - i.ttl AND 'worker' = ANY (i.roles)
       AND i.queue_kind <> 'memory' AND NOT 'default' = ANY (r.topics)
       AND r.topics IS DISTINCT FROM (SELECT o.topics FROM outboxd.instance_report o WHERE o.instance = $1::int)
)
SELECT t.name AS topic, true AS paused FROM outboxd.topic t WHERE t.paused_at IS NOT NULL
UNION ALL
(SELECT u.topic, false FROM lacking l CROSS JOIN LATERAL unnest(l.topics) u(topic)
  GROUP BY u.topic HAVING count(*) = (SELECT count(*) FROM lacking))
UNION ALL
(SELECT NULL, false FROM lacking LIMIT 1)
