-- The topics that running instances have routes for, whichever started last: those that some relay publishes and those
-- that some worker calls for; `default` stands for all. NULL: nobody with that role runs, or none has reported yet. A
-- topic that is in neither has no route: `NOT published && ARRAY[topic, 'default'] OR NOT called && …`. One row.
-- Locks: none. Index: those of _carrier.
CREATE OR REPLACE VIEW outboxd._routed AS
SELECT array_agg(DISTINCT t.topic) FILTER (WHERE 'relay' = ANY (c.roles)) AS published,
       array_agg(DISTINCT t.topic) FILTER (WHERE 'worker' = ANY (c.roles)) AS called
  FROM outboxd._carrier c CROSS JOIN LATERAL unnest(coalesce(c.topics, '{default}')) t(topic)
 WHERE c.topics IS NOT NULL OR NOT 'worker' = ANY (c.roles);
