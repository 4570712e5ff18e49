-- One step of retention in outboxd.attempt: looks at the next $2 rows by id and deletes those older than $3; the first
-- younger one ends the scan for now. Attempts of notifications that go are deleted with them.
-- Interleavings: those of _begin_retention_step(); nothing updates these rows.
-- $1 owner · $2 rows to look at · $3 kept for, in ms · $4 a new scan after, in ms
-- Locks: the rows deleted; its progress row; the lease FOR KEY SHARE. Index: attempt_pkey.
WITH begun AS MATERIALIZED (
    SELECT outboxd._begin_retention_step('attempt', $1::int, $4::bigint * interval '1 ms') AS after
), seen AS MATERIALIZED (
    SELECT x.id, x.ended_at < clock_timestamp() - $3::bigint * interval '1 ms' AS is_over
      FROM begun b CROSS JOIN LATERAL (
           SELECT x.id, x.ended_at FROM outboxd.attempt x WHERE x.id > b.after ORDER BY x.id LIMIT $2::int) x
), gone AS (
    DELETE FROM outboxd.attempt x USING seen s WHERE x.id = s.id AND s.is_over RETURNING x.id
), over AS MATERIALIZED (
    SELECT max(s.id) AS through, count(*) < $2::int AS is_caught_up FROM seen s WHERE s.is_over
)
SELECT (SELECT outboxd._end_retention_step('attempt', o.through, o.is_caught_up) FROM over o, begun b WHERE b.after IS NOT NULL),
       (SELECT count(*) FROM gone) AS deleted
