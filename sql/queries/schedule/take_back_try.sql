-- A reading was not to be ended by us, or by a server that is away: its try is taken back.
-- Interleavings: of several readings each has counted one try and takes back its own; one that stands has set them to 0.
-- $1 run
-- Locks: the run's row. Index: schedule_run_pkey.
UPDATE outboxd.schedule_run r SET tries = r.tries - 1
 WHERE r.id = $1::bigint AND r.tries > 0 AND r.state = 'preparing' AND r.staged IS NULL
