-- The schedules with when they run next, and the last runs of all of them.
-- $1 patterns of LIKE for topics, NULL: all. Locks: none. Index: schedule_run_slot, from its end.
SELECT json_build_object(
    'schedules', (SELECT json_agg(s ORDER BY s.next_slot NULLS FIRST, s.name) FROM (
        SELECT c.* FROM outboxd.schedules c WHERE $1::text[] IS NULL OR c.topic LIKE ANY ($1) ORDER BY c.next_slot NULLS FIRST, c.name LIMIT 100) s),
    'runs', (SELECT json_agg(r) FROM (
        SELECT u.* FROM outboxd.schedule_runs u WHERE $1::text[] IS NULL OR u.topic LIKE ANY ($1) ORDER BY u.slot DESC, u.run DESC LIMIT 30) r)) AS page
