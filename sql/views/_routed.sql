-- The topics that running instances have routes for, whichever started last: those that some relay publishes and those that
-- some worker calls for; `default` stands for all. NULL: no instance with that role runs. One row.
-- Locks: none. Index: those of _carrier.
CREATE OR REPLACE VIEW outboxd._routed AS
SELECT array_agg(DISTINCT t.topic) FILTER (WHERE 'relay' = ANY (c.roles)) AS published,
       array_agg(DISTINCT t.topic) FILTER (WHERE 'worker' = ANY (c.roles)) AS called
  FROM outboxd._carrier c CROSS JOIN LATERAL unnest(coalesce(c.topics, '{default}')) t(topic);
