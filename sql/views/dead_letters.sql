-- What was given up, newest first by failed_at (index notification_log_failed). What the provider said last is looked up
-- only for rows and queries that show it (index attempt_notification).
CREATE OR REPLACE VIEW outboxd.dead_letters AS
SELECT l.id, l.topic, l.recipient, l.channel, l.attempts, l.error, l.http_status, l.failed_at, l.created_at, l.payload,
       (SELECT left(a.response, 300) FROM outboxd.attempt a WHERE a.notification_id = l.id ORDER BY a.id DESC LIMIT 1) AS response
  FROM outboxd.notification_log l
 WHERE l.failed_at IS NOT NULL;

COMMENT ON VIEW outboxd.dead_letters IS
    'Notifications that were given up. Back to work: outboxd.retry(id), outboxd.retry_dead(topic); put away: '
    'outboxd.discard(id).';
COMMENT ON COLUMN outboxd.dead_letters.id IS 'See outboxd.notifications.id.';
COMMENT ON COLUMN outboxd.dead_letters.topic IS 'What it is about.';
COMMENT ON COLUMN outboxd.dead_letters.recipient IS 'As the app gave it.';
COMMENT ON COLUMN outboxd.dead_letters.channel IS 'The channel that was tried last.';
COMMENT ON COLUMN outboxd.dead_letters.attempts IS 'Calls to providers, all channels.';
COMMENT ON COLUMN outboxd.dead_letters.error IS 'The last error.';
COMMENT ON COLUMN outboxd.dead_letters.http_status IS 'The provider''s last HTTP status, if it answered.';
COMMENT ON COLUMN outboxd.dead_letters.failed_at IS 'When it was given up.';
COMMENT ON COLUMN outboxd.dead_letters.created_at IS 'When notify() ran.';
COMMENT ON COLUMN outboxd.dead_letters.payload IS 'As the app gave it.';
COMMENT ON COLUMN outboxd.dead_letters.response IS
    'The beginning of what the provider answered last, also inside a 200 that was no delivery; the rest is in outboxd.attempts.';
