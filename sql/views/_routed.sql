-- What the running instances can do, whichever started last: the topics that some relay publishes and those that some
-- worker calls for, as objects, in which a name is found at once; `default` stands for all, and then `has_default`. NULL:
-- nobody with that role runs, or none has reported yet. A topic that is in neither has no route:
-- `NOT published ?| ARRAY[topic, 'default'] OR NOT called ?| ARRAY[topic, 'default']`.
-- And who is at a limit: channels, each as [the limit, calls that can be expected to start in a second], and topics that
-- have their share of the calls, each with these calls. Where several instances are at different limits of a channel, the
-- one counts that an operator can do most about. One row.
-- Locks: none. Index: those of _carrier; instance_report_pkey.
CREATE OR REPLACE VIEW outboxd._routed AS
WITH told AS (
    SELECT p.limits, p.shares
      FROM outboxd.instance i JOIN outboxd.instance_report p ON p.instance = i.id
     WHERE i.stopped_at IS NULL AND i.heartbeat_at >= now() - i.ttl AND p.reported_at > now() - interval '15 s'
)
SELECT jsonb_object_agg(t.topic, true) FILTER (WHERE 'relay' = ANY (c.roles)) AS published,
       jsonb_object_agg(t.topic, true) FILTER (WHERE 'worker' = ANY (c.roles)) AS called,
       bool_or(t.topic = 'default' AND 'relay' = ANY (c.roles)) AND bool_or(t.topic = 'default' AND 'worker' = ANY (c.roles)) AS has_default,
       (SELECT jsonb_object_agg(l.channel, jsonb_build_array(l.limited_by, l.per_second))
          FROM (SELECT r.key AS channel, sum((r.value ->> 1)::float8) AS per_second,
                       (array_agg(r.value ->> 0 ORDER BY array_position('{rate_limit,max_in_flight,concurrency,max_in_flight_per_origin}', r.value ->> 0)))[1]
                       AS limited_by
                  FROM told p CROSS JOIN LATERAL jsonb_each(p.limits) r GROUP BY 1) l) AS limits,
       (SELECT jsonb_object_agg(s.topic, s.per_second)
          FROM (SELECT r.key AS topic, sum(r.value::text::float8) AS per_second
                  FROM told p CROSS JOIN LATERAL jsonb_each(p.shares) r GROUP BY 1) s) AS shares
  FROM outboxd._carrier c CROSS JOIN LATERAL unnest(coalesce(c.topics, '{default}')) t(topic)
 WHERE c.topics IS NOT NULL OR NOT 'worker' = ANY (c.roles);
