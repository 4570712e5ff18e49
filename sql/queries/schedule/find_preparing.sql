-- Runs that are to be prepared or gone on with, the most urgent first; those whose audience came to no end come after
-- the others. Those that a copy brought wait (origin).
-- $1 runs at most
-- Locks: none. Index: schedule_run_open.
SELECT r.id FROM outboxd.schedule_run r
 WHERE r.ended_at IS NULL AND r.state = 'preparing'
   AND r.schedule_id > (SELECT o.schedules_through FROM outboxd.origin o) ORDER BY r.tries, r.release_at, r.id LIMIT $1::int
