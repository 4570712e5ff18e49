-- A reading stands, if no later one began and the run was not canceled meanwhile.
-- Interleavings: a later reading has another number, a canceled run another state; both leave this one without effect.
-- $1 run · $2 reading · $3 rows read
-- Locks: the run's row. Index: schedule_run_pkey.
UPDATE outboxd.schedule_run r SET staged = $2::int, position = 0, recipients = $3::bigint, tries = 0, error = NULL
 WHERE r.id = $1::bigint AND r.attempt = $2::int AND r.state = 'preparing' AND r.staged IS NULL
RETURNING r.id
