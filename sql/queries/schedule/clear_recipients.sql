-- Removes a chunk of what was staged for a run that ended before it was copied.
-- Interleavings: the run has ended, so nobody copies from it; a run that is locked waits for the next pass. Only the
-- lease's owner clears.
-- $1 owner · $2 rows at most
-- Locks: the run's row, the chunk; the lease FOR KEY SHARE. Index: schedule_run_open, schedule_recipient_pkey.
WITH lease AS MATERIALIZED (SELECT WHERE outboxd._owns_lease('schedules', $1::int)), run AS MATERIALIZED (
    SELECT r.id, r.staged, r.position, r.recipients FROM outboxd.schedule_run r
     WHERE r.staged IS NOT NULL AND r.ended_at IS NOT NULL AND EXISTS (SELECT FROM lease) ORDER BY r.id LIMIT 1 FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM outboxd.schedule_recipient p USING run r
     WHERE p.run_id = r.id AND p.attempt = r.staged AND p.n > r.position AND p.n <= r.position + $2::int
    RETURNING p.n
)
UPDATE outboxd.schedule_run r
   SET position = w.position + $2::int, staged = CASE WHEN w.position + $2::int < w.recipients THEN r.staged END
  FROM run w WHERE r.id = w.id
RETURNING (SELECT count(*) FROM gone)
