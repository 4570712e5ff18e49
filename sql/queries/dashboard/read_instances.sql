-- Instances that run or ran within the last day, a page of them: the dead first, then those at work.
-- $1 only numbers and hosts with this in them · $2 $3 $4 $5 the place of the last one of the page before; NULL: from the
-- first on
-- Locks: none. Index: none: as many rows as there were starts within the day; 51 at most are shown.
WITH ranked AS MATERIALIZED (
    SELECT n.*, extract(epoch FROM n.heartbeat_age)::float8 AS heartbeat_age_s,
           array_position(ARRAY['dead', 'draining', 'alive', 'stopped'], n.state) AS rank, concat_ws(' ', n.worker, n.host) AS name
      FROM outboxd.instances n
), listed AS (
    SELECT r.*, json_build_array(r.rank, -r.worker, 0, '') AS place, (
               SELECT json_agg(d.name ORDER BY d.name) FROM outboxd.leader_lease d WHERE d.owner = r.worker AND d.until > now()) AS leases
      FROM ranked r
     WHERE ($1::text IS NULL OR position(lower($1) IN lower(r.name)) > 0)
       AND ($2::bigint IS NULL OR (r.rank, -r.worker, 0, '') > ($2, $3::bigint, $4::bigint, $5::text))
     ORDER BY r.rank, -r.worker LIMIT 51
)
SELECT json_build_object(
    'instances', (SELECT json_agg(l) FROM listed l),
    'total', (SELECT json_build_object('instances', count(*), 'dead', count(*) FILTER (WHERE r.state = 'dead'),
        'at_work', count(*) FILTER (WHERE r.state IN ('alive', 'draining')),
        'matching', count(*) FILTER (WHERE $1 IS NULL OR position(lower($1) IN lower(r.name)) > 0)) FROM ranked r)) AS page
