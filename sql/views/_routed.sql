-- What the running instances can do, whichever started last: the topics that some relay publishes and those that some
-- worker calls for; `default` stands for all, and then `has_default`. NULL: nobody with that role runs, or none has
-- reported yet. A topic that is in neither has no route: `NOT published && ARRAY[topic, 'default'] OR NOT called && …`.
-- And the channels that are at a limit, as an object: [the limit, calls that can be expected to start in a second].
-- Of several instances the limit that an operator can do most about counts, in the order of the names. One row.
-- Locks: none. Index: those of _carrier; instance_report_pkey.
CREATE OR REPLACE VIEW outboxd._routed AS
SELECT array_agg(DISTINCT t.topic) FILTER (WHERE 'relay' = ANY (c.roles)) AS published,
       array_agg(DISTINCT t.topic) FILTER (WHERE 'worker' = ANY (c.roles)) AS called,
       bool_or(t.topic = 'default' AND 'relay' = ANY (c.roles)) AND bool_or(t.topic = 'default' AND 'worker' = ANY (c.roles)) AS has_default,
       (SELECT jsonb_object_agg(l.channel, jsonb_build_array(l.limited_by, l.per_second))
          FROM (SELECT r.key AS channel, min(r.value ->> 0) AS limited_by, sum((r.value ->> 1)::float8) AS per_second
                  FROM outboxd.instance i JOIN outboxd.instance_report p ON p.instance = i.id CROSS JOIN LATERAL jsonb_each(p.limits) r
                 WHERE i.stopped_at IS NULL AND i.heartbeat_at >= now() - i.ttl AND p.reported_at > now() - interval '15 s'
                 GROUP BY 1) l) AS limits
  FROM outboxd._carrier c CROSS JOIN LATERAL unnest(coalesce(c.topics, '{default}')) t(topic)
 WHERE c.topics IS NOT NULL OR NOT 'worker' = ANY (c.roles);
