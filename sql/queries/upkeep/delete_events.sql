-- One step of retention in outboxd.event: reads the next $2 rows by id and deletes those older than $3; the first
-- younger one ends the scan for now. What is still to be appended to its stream, and what came after it, stays.
-- Publications go when they are as old; what they name is older still.
-- Interleavings: those of _begin_retention_step(); nothing updates these rows. An
-- event that is reserved meanwhile was waiting when this began. One that Redis lost and whose time is over is not
-- appended again.
-- $1 owner · $2 rows to read · $3 kept for, in ms · $4 a new scan after, in ms
-- Locks: the rows deleted; its progress row; the lease FOR KEY SHARE. Index: event_pkey, event_publication_pkey.
WITH begun AS MATERIALIZED (
    SELECT outboxd._begin_retention_step('event', $1::int, $4::bigint * interval '1 ms') AS after
), unappended AS MATERIALIZED (
    SELECT least((SELECT min(p.event_id) FROM outboxd.event_outbox p),
                 (SELECT min(i.id) FROM outboxd.event_publication p CROSS JOIN unnest(p.event_ids) i(id)
                   WHERE p.number > (SELECT g.appended FROM outboxd.event_progress g)), 9223372036854775807) AS id
), seen AS MATERIALIZED (
    SELECT x.id, x.created_at < clock_timestamp() - $3::bigint * interval '1 ms'
           AND x.id < (SELECT u.id FROM unappended u) AS is_over
      FROM begun b CROSS JOIN LATERAL (
           SELECT x.id, x.created_at FROM outboxd.event x WHERE x.id > b.after ORDER BY x.id LIMIT $2::int) x
), gone AS (
    DELETE FROM outboxd.event x USING seen s WHERE x.id = s.id AND s.is_over RETURNING x.id
), forgotten AS (
    DELETE FROM outboxd.event_publication p
     WHERE p.number = ANY (ARRAY(SELECT f.number FROM (
               SELECT f.number, f.created_at FROM outboxd.event_publication f
                WHERE EXISTS (SELECT FROM begun b WHERE b.after IS NOT NULL) ORDER BY f.number LIMIT $2::int) f
                WHERE f.created_at < clock_timestamp() - $3::bigint * interval '1 ms'
                  AND f.number <= (SELECT g.appended FROM outboxd.event_progress g)))
), over AS MATERIALIZED (
    SELECT max(s.id) AS through, count(*) < $2::int AS is_caught_up FROM seen s WHERE s.is_over
)
SELECT (SELECT outboxd._end_retention_step('event', o.through, o.is_caught_up) FROM over o, begun b WHERE b.after IS NOT NULL),
       (SELECT count(*) FROM gone) AS deleted
