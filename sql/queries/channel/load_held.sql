-- Which channels and origins are held now, as every instance sees it, and which an operator freed lately; spans by the
-- database's clock. The topics that an operator paused, each in a row of its own. And, if some other worker that shares
-- our queue lacks routes, the topics that all of them have: whoever has others keeps those to itself. One that has not
-- reported its routes yet, or has `default`, lacks none; one with the same routes as we have, neither. A last shared
-- topic without a name says that some do.
-- $1 instance: its own probes are not elsewhere
-- Locks: none. Index: instance_report_pkey; the tables are small, and have rows only for what is or was held.
WITH lacking AS (
    SELECT r.topics FROM outboxd.instance i JOIN outboxd.instance_report r ON r.instance = i.id
     WHERE i.id <> $1::int AND i.stopped_at IS NULL AND i.heartbeat_at >= now() - i.ttl AND 'worker' = ANY (i.roles)
       AND i.queue_kind <> 'memory' AND NOT 'default' = ANY (r.topics)
       AND r.topics IS DISTINCT FROM (SELECT o.topics FROM outboxd.instance_report o WHERE o.instance = $1::int)
)
SELECT 'channel' AS what, NULL::text AS topic, h.channel, h.origin, h.paused_at IS NOT NULL AS paused, h.reason, h.openings,
       greatest(extract(epoch FROM clock_timestamp() - h.changed_at) * 1000, 0)::bigint AS changed_ms_ago,
       greatest(extract(epoch FROM h.held_until - clock_timestamp()) * 1000, 0)::bigint AS left_ms,
       CASE WHEN h.probe_by <> $1::int
            THEN greatest(extract(epoch FROM h.probe_until - clock_timestamp()) * 1000, 0)::bigint END AS probe_left_ms
  FROM outboxd.channel_state h
 WHERE h.paused_at IS NOT NULL OR h.reason IS NOT NULL OR h.changed_at > clock_timestamp() - interval '1 min'
UNION ALL
SELECT 'paused topic', t.name, '', '', false, NULL, 0, 0, NULL, NULL FROM outboxd.topic t WHERE t.paused_at IS NOT NULL
UNION ALL
(SELECT 'shared topic', u.topic, '', '', false, NULL, 0, 0, NULL, NULL FROM lacking l CROSS JOIN LATERAL unnest(l.topics) u(topic)
  GROUP BY u.topic HAVING count(*) = (SELECT count(*) FROM lacking))
UNION ALL
(SELECT 'shared topic', NULL, '', '', false, NULL, 0, 0, NULL, NULL FROM lacking LIMIT 1)
