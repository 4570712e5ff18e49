-- What became of each slot.
CREATE OR REPLACE VIEW outboxd.schedule_runs AS
SELECT r.id AS run, r.schedule, r.slot, r.state, r.recipients, r.prepared, r.released,
       CASE WHEN outboxd._sees_all() THEN r.error ELSE outboxd._cause(r.error) END AS error, r.topic, r.audience,
       r.started_at, r.prepared_at, r.release_at, r.ended_at
  FROM outboxd.schedule_run r
 WHERE outboxd._planned_for(outboxd._sees_all());

COMMENT ON VIEW outboxd.schedule_runs IS 'One row per slot of each schedule, also of dropped ones.';
COMMENT ON COLUMN outboxd.schedule_runs.run IS
    'Its number; the dedup_key of its notifications begins with schedule:<run>:.';
COMMENT ON COLUMN outboxd.schedule_runs.schedule IS 'The schedule''s name.';
COMMENT ON COLUMN outboxd.schedule_runs.slot IS 'The time that cron named.';
COMMENT ON COLUMN outboxd.schedule_runs.state IS
    'preparing, prepared (waits for the slot or is being released), released, missed (nobody ran in time), paused (the schedule was), '
    'failed, canceled.';
COMMENT ON COLUMN outboxd.schedule_runs.recipients IS 'Rows the audience had.';
COMMENT ON COLUMN outboxd.schedule_runs.prepared IS
    'Notifications written so far; a recipient that came twice counts once.';
COMMENT ON COLUMN outboxd.schedule_runs.released IS 'Of these, no longer PENDING, as last counted.';
COMMENT ON COLUMN outboxd.schedule_runs.error IS
    'Why it failed, or was missed; while it is preparing, why its audience is read again. For readers without what may quote a row.';
COMMENT ON COLUMN outboxd.schedule_runs.topic IS 'The topic of its notifications.';
COMMENT ON COLUMN outboxd.schedule_runs.audience IS 'What was read.';
COMMENT ON COLUMN outboxd.schedule_runs.started_at IS 'When preparing began.';
COMMENT ON COLUMN outboxd.schedule_runs.prepared_at IS 'When all of them were written.';
COMMENT ON COLUMN outboxd.schedule_runs.release_at IS 'When the first is due: the slot, or later if it was missed.';
COMMENT ON COLUMN outboxd.schedule_runs.ended_at IS 'When the last had been released, or it ended otherwise.';
