-- Instances that run or ran within the last day, those at work first.
-- Parameters: none. Locks: none. Index: none: as many rows as there were starts within the day, 100 at most are shown.
SELECT json_build_object('instances', (SELECT json_agg(i) FROM (
    SELECT n.*, extract(epoch FROM n.heartbeat_age)::float8 AS heartbeat_age_s, l.leases
      FROM outboxd.instances n LEFT JOIN LATERAL (
           SELECT json_agg(d.name ORDER BY d.name) AS leases FROM outboxd.leader_lease d WHERE d.owner = n.worker AND d.until > now()) l ON true
     ORDER BY array_position(ARRAY['dead', 'draining', 'alive', 'stopped'], n.state), n.worker DESC LIMIT 100) i)) AS page
