-- Counts what of prepared runs is still PENDING after their slot; a run with nothing left is released. Those that a copy
-- brought wait (origin).
-- Interleavings: what is released between the count and the update is counted by the next pass; a run that was canceled
-- in between is left alone.
-- $1 owner · $2 runs at most
-- Locks: the runs' rows; the lease FOR KEY SHARE. Index: schedule_run_open, notification_log_due.
WITH lease AS MATERIALIZED (SELECT WHERE outboxd._owns_lease('schedules', $1::int)), waiting AS MATERIALIZED (
    SELECT r.id, (SELECT count(*) FROM outboxd.notification_log l
                   WHERE l.topic = r.topic AND l.due_at BETWEEN r.release_at AND r.release_at + r.spread
                     AND starts_with(l.dedup_key, 'schedule:' || r.id || ':')) AS pending
      FROM outboxd.schedule_run r
     WHERE r.ended_at IS NULL AND r.state = 'prepared' AND r.release_at <= clock_timestamp() AND EXISTS (SELECT FROM lease)
       AND r.schedule_id > (SELECT o.schedules_through FROM outboxd.origin o)
     ORDER BY r.id LIMIT $2::int
)
UPDATE outboxd.schedule_run r
   SET released = r.prepared - w.pending, state = CASE WHEN w.pending = 0 THEN 'released' ELSE r.state END,
       ended_at = CASE WHEN w.pending = 0 THEN clock_timestamp() END
  FROM waiting w WHERE r.id = w.id AND r.state = 'prepared'
RETURNING r.schedule, r.slot, r.state = 'released' AS is_done, r.prepared
