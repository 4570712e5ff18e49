-- A run cannot be prepared: it ends, with the reason. What was prepared before stays.
-- Interleavings: a later reading, a cancel or another owner has the say.
-- $1 owner · $2 run · $3 reading (NULL: whichever stands) · $4 error
-- Locks: the run's row; the lease FOR KEY SHARE. Index: schedule_run_pkey.
WITH lease AS MATERIALIZED (SELECT WHERE outboxd._owns_lease('schedules', $1::int))
UPDATE outboxd.schedule_run r SET state = 'failed', error = left($4::text, 2000), ended_at = clock_timestamp()
 WHERE r.id = $2::bigint AND r.attempt = coalesce($3::int, r.attempt) AND r.state = 'preparing' AND EXISTS (SELECT FROM lease)
RETURNING r.schedule
