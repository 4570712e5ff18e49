-- A reading came to no end: its try, counted when it began, is used up. The run is read again, and the third time it ends
-- with the reason. Until then the reason stands in its row.
-- Interleavings: a later reading, a cancel or another owner has the say.
-- $1 owner · $2 run · $3 reading · $4 reason
-- Locks: the run's row; the lease FOR KEY SHARE. Index: schedule_run_pkey.
WITH lease AS MATERIALIZED (SELECT WHERE outboxd._owns_lease('schedules', $1::int))
UPDATE outboxd.schedule_run r
   SET state = CASE WHEN r.tries >= 3 THEN 'failed' ELSE 'preparing' END,
       ended_at = CASE WHEN r.tries >= 3 THEN clock_timestamp() END,
       error = left($4::text, 1900) || CASE WHEN r.tries >= 3 THEN '; given up after 3 tries' ELSE format('; try %s of 3', r.tries) END
 WHERE r.id = $2::bigint AND r.attempt = $3::int AND r.state = 'preparing' AND r.staged IS NULL AND EXISTS (SELECT FROM lease)
RETURNING r.schedule, r.state = 'failed' AS is_failed
