-- The schedules and when they run next.
CREATE OR REPLACE VIEW outboxd.schedules AS
SELECT s.name, s.cron, s.timezone, s.topic, s.audience, s.lead, s.spread, s.catch_up, s.expires_after,
       CASE WHEN s.error IS NOT NULL THEN 'invalid' WHEN s.paused_at IS NOT NULL THEN 'paused' WHEN s.next_slot IS NULL THEN 'new' ELSE 'active' END AS state,
       s.next_slot, r.slot AS last_slot, r.state AS last_state, coalesce(s.error, CASE WHEN outboxd._sees_all() THEN r.error ELSE outboxd._cause(r.error) END) AS error, s.created_at, s.changed_at,
       s.paused_at
  FROM outboxd.schedule s
  LEFT JOIN LATERAL (SELECT r.slot, r.state, r.error FROM outboxd.schedule_run r
                      WHERE r.schedule_id = s.id ORDER BY r.version DESC, r.slot DESC LIMIT 1) r ON true
 WHERE outboxd._planned_for(outboxd._sees_all());

COMMENT ON VIEW outboxd.schedules IS 'Campaigns that repeat: create_schedule(), alter_schedule(), pause_schedule(), '
    'resume_schedule(), drop_schedule().';
COMMENT ON COLUMN outboxd.schedules.name IS 'Its name.';
COMMENT ON COLUMN outboxd.schedules.cron IS 'Minute, hour, day of month, month, day of week.';
COMMENT ON COLUMN outboxd.schedules.timezone IS 'Where cron is read; daylight saving follows it.';
COMMENT ON COLUMN outboxd.schedules.topic IS 'The topic of its notifications; decides the route.';
COMMENT ON COLUMN outboxd.schedules.audience IS 'The relation or function that says who gets what.';
COMMENT ON COLUMN outboxd.schedules.lead IS 'How long before the slot the audience is read.';
COMMENT ON COLUMN outboxd.schedules.spread IS 'Notifications are spread over so long, from the slot.';
COMMENT ON COLUMN outboxd.schedules.catch_up IS 'A slot missed by downtime still runs for so long.';
COMMENT ON COLUMN outboxd.schedules.expires_after IS 'What it sends expires so long after it was to be sent; NULL: never.';
COMMENT ON COLUMN outboxd.schedules.state IS
    'active; paused; new: no instance has planned it yet; invalid: it cannot run, see error.';
COMMENT ON COLUMN outboxd.schedules.next_slot IS 'When it runs next; paused: the next slot that it lets pass.';
COMMENT ON COLUMN outboxd.schedules.last_slot IS 'Its latest slot on record.';
COMMENT ON COLUMN outboxd.schedules.last_state IS 'What became of it: see outboxd.schedule_runs.';
COMMENT ON COLUMN outboxd.schedules.error IS 'Why it cannot run, or why its latest run failed.';
COMMENT ON COLUMN outboxd.schedules.created_at IS 'When it was created.';
COMMENT ON COLUMN outboxd.schedules.changed_at IS 'When it was last altered or resumed; slots after that count.';
COMMENT ON COLUMN outboxd.schedules.paused_at IS 'Since when it is paused.';
