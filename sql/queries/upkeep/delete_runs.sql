-- One step of the walk up outboxd.schedule_run: the next $2 rows by id, of which those older than $3 are deleted; the first
-- younger one ends the walk for now. Open runs stay.
-- Interleavings: a former owner finds no lease; its progress row keeps two steps apart; nothing updates runs that have ended.
-- $1 owner · $2 rows to look at · $3 kept for, in ms · $4 a new walk after, in ms
-- Locks: the rows deleted; its progress row; the lease FOR KEY SHARE. Index: schedule_run_pkey.
WITH lease AS MATERIALIZED (
    SELECT d.name FROM outboxd.leader_lease d
     WHERE d.name = 'retention' AND d.owner = $1::int AND d.until > clock_timestamp() FOR KEY SHARE
), walk AS MATERIALIZED (
    SELECT w.name, w.is_caught_up AND w.restarted_at < clock_timestamp() - $4::bigint * interval '1 ms' AS starts, w.position
      FROM outboxd.retention_progress w WHERE w.name = 'schedule_run' AND EXISTS (SELECT FROM lease) FOR UPDATE
), seen AS MATERIALIZED (
    SELECT x.id, x.ended_at < clock_timestamp() - $3::bigint * interval '1 ms' AS is_over
      FROM walk w CROSS JOIN LATERAL (
           SELECT x.id, x.ended_at FROM outboxd.schedule_run x
            WHERE x.id > CASE WHEN w.starts THEN 0 ELSE w.position END ORDER BY x.id LIMIT $2::int) x
), gone AS (
    DELETE FROM outboxd.schedule_run x USING seen s WHERE x.id = s.id AND s.is_over RETURNING x.id
), moved AS (
    UPDATE outboxd.retention_progress w
       SET position = coalesce((SELECT max(s.id) FROM seen s WHERE s.is_over), CASE WHEN k.starts THEN 0 ELSE w.position END),
           is_caught_up = (SELECT count(*) FROM seen s WHERE s.is_over) < $2::int,
           restarted_at = CASE WHEN k.starts THEN clock_timestamp() ELSE w.restarted_at END
      FROM walk k WHERE w.name = k.name
    RETURNING w.is_caught_up
)
SELECT (SELECT m.is_caught_up FROM moved m) AS is_caught_up, (SELECT count(*) FROM gone) AS deleted
