-- A new reading of a run's audience, if none stands: its number voids all earlier ones that are still under way. It is
-- counted as a try at once, so that one counts of which nobody lives to tell. No row: it is staged already, or the run has
-- ended, or the lease is not ours.
-- Interleavings: of two owners, before and after the lease went over, the later number stands.
-- $1 owner · $2 run
-- Locks: the run's row; the lease FOR KEY SHARE. Index: schedule_run_pkey.
WITH lease AS MATERIALIZED (SELECT WHERE outboxd._owns_lease('schedules', $1::int))
UPDATE outboxd.schedule_run r SET attempt = r.attempt + 1, tries = r.tries + 1
 WHERE r.id = $2::bigint AND r.state = 'preparing' AND r.staged IS NULL AND EXISTS (SELECT FROM lease)
RETURNING r.attempt, r.tries, r.audience, r.slot, (SELECT s.audience_rows_max FROM outboxd.setting s) AS rows_max,
          (SELECT (extract(epoch FROM s.audience_time_max) * 1000)::bigint FROM outboxd.setting s) AS time_max_ms
