-- What was given up, newest first by failed_at (index notification_log_failed). What the provider said last is looked up
-- only for rows and queries that show it (index attempt_notification).
CREATE OR REPLACE VIEW outboxd.dead_letters AS
SELECT l.id, l.topic, CASE WHEN outboxd._sees_all() THEN l.recipient ELSE outboxd._masked(l.recipient) END AS recipient, l.channel,
       l.attempts, CASE WHEN outboxd._sees_all() THEN l.error ELSE outboxd._cause(l.error) END AS error, l.http_status, l.failed_at,
       l.created_at, CASE WHEN outboxd._sees_all() THEN l.payload END AS payload,
       CASE WHEN outboxd._sees_all() THEN
           (SELECT left(a.response, 300) FROM outboxd.attempt a WHERE a.notification_id = l.id ORDER BY a.id DESC LIMIT 1) END AS response
  FROM outboxd.notification_log l
 WHERE l.failed_at IS NOT NULL AND outboxd._planned_for(outboxd._sees_all());

COMMENT ON VIEW outboxd.dead_letters IS
    'Notifications that were given up. Back to work: outboxd.retry(id), outboxd.retry_dead(topic); put away: '
    'outboxd.discard(id).';
COMMENT ON COLUMN outboxd.dead_letters.id IS 'See outboxd.notifications.id.';
COMMENT ON COLUMN outboxd.dead_letters.topic IS 'What it is about.';
COMMENT ON COLUMN outboxd.dead_letters.recipient IS 'As the app gave it; for readers its ends.';
COMMENT ON COLUMN outboxd.dead_letters.channel IS 'The channel that was tried last.';
COMMENT ON COLUMN outboxd.dead_letters.attempts IS 'Calls to providers, all channels.';
COMMENT ON COLUMN outboxd.dead_letters.error IS 'The last error; for readers without what may quote a provider.';
COMMENT ON COLUMN outboxd.dead_letters.http_status IS 'The provider''s last HTTP status, if it answered.';
COMMENT ON COLUMN outboxd.dead_letters.failed_at IS 'When it was given up.';
COMMENT ON COLUMN outboxd.dead_letters.created_at IS 'When notify() ran.';
COMMENT ON COLUMN outboxd.dead_letters.payload IS 'As the app gave it; NULL for readers.';
COMMENT ON COLUMN outboxd.dead_letters.response IS
    'The beginning of what the provider answered last, also inside a 200 that was no delivery; the rest is in outboxd.attempts. NULL for readers.';
