-- The schedules, a page of them, worst first: invalid, failed, missed, paused; then by their next slot. And the last runs.
-- $1 only schedules with this in their name or topic · $2 $3 $4 $5 the place of the last one of the page before; NULL:
-- from the first on · $6 patterns of LIKE for topics; NULL: all
-- Locks: none. Index: schedule_run_slot, from its end; 51 schedules and 30 runs at most.
WITH ranked AS MATERIALIZED (
    SELECT c.*, CASE WHEN c.state = 'invalid' THEN 0 WHEN c.last_state = 'failed' THEN 1 WHEN c.last_state = 'missed' THEN 2
                     WHEN c.state = 'paused' THEN 3 ELSE 4 END AS rank,
           coalesce((extract(epoch FROM c.next_slot) * 1000)::bigint, 0) AS next_ms
      FROM outboxd.schedules c WHERE $6::text[] IS NULL OR c.topic LIKE ANY ($6)
), listed AS (
    SELECT r.*, json_build_array(r.rank, r.next_ms, 0, r.name) AS place FROM ranked r
     WHERE ($1::text IS NULL OR position(lower($1) IN lower(concat_ws(' ', r.name, r.topic))) > 0)
       AND ($2::bigint IS NULL OR (r.rank, r.next_ms, 0, r.name COLLATE "C") > ($2, $3::bigint, $4::bigint, $5::text COLLATE "C"))
     ORDER BY r.rank, r.next_ms, r.name COLLATE "C" LIMIT 51
)
SELECT json_build_object(
    'schedules', (SELECT json_agg(l) FROM listed l),
    'total', (SELECT json_build_object('schedules', count(*), 'invalid', count(*) FILTER (WHERE r.rank = 0), 'failed', count(*) FILTER (WHERE r.rank = 1),
        'missed', count(*) FILTER (WHERE r.rank = 2), 'paused', count(*) FILTER (WHERE r.state = 'paused'),
        'matching', count(*) FILTER (WHERE $1 IS NULL OR position(lower($1) IN lower(concat_ws(' ', r.name, r.topic))) > 0)) FROM ranked r),
    'runs', (SELECT json_agg(r) FROM (
        SELECT u.* FROM outboxd.schedule_runs u
         WHERE ($6 IS NULL OR u.topic LIKE ANY ($6))
           AND ($1 IS NULL OR u.schedule IN (SELECT r.name FROM ranked r WHERE position(lower($1) IN lower(concat_ws(' ', r.name, r.topic))) > 0))
         ORDER BY u.slot DESC, u.run DESC LIMIT 30) r)) AS page
