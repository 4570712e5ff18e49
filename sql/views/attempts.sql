-- Every attempt that did not end in a recorded success.
CREATE OR REPLACE VIEW outboxd.attempts AS
SELECT a.notification_id, a.number, a.channel, a.started_at, a.ended_at, a.duration_ms, a.outcome, a.http_status,
       CASE WHEN outboxd._sees_all() THEN a.error ELSE outboxd._cause(a.error) END AS error,
       CASE WHEN outboxd._sees_all() THEN a.response END AS response, a.instance AS worker, a.token, a.id, a.provider_id
  FROM outboxd.attempt a
 WHERE outboxd._planned_for(outboxd._sees_all());

COMMENT ON VIEW outboxd.attempts IS
    'Every failed, unknown, late or duplicate attempt. A success without incident leaves no row.';
COMMENT ON COLUMN outboxd.attempts.notification_id IS 'See outboxd.notifications.id.';
COMMENT ON COLUMN outboxd.attempts.number IS 'Which call of this notification it was, from 1, over all channels. NULL: the outcome came too late, or the call was a probe of an '
    'open circuit, which uses up no attempt.';
COMMENT ON COLUMN outboxd.attempts.channel IS 'The channel that was called.';
COMMENT ON COLUMN outboxd.attempts.started_at IS 'When the call began.';
COMMENT ON COLUMN outboxd.attempts.ended_at IS 'When the outcome was recorded.';
COMMENT ON COLUMN outboxd.attempts.duration_ms IS 'How long the call took, in milliseconds.';
COMMENT ON COLUMN outboxd.attempts.outcome IS
    'failed; unknown: no answer was seen, the provider may have it; late failure, late success: the answer came after '
    'the lease was over; duplicate: it had been SENT before.';
COMMENT ON COLUMN outboxd.attempts.http_status IS 'The provider''s HTTP status, if it answered.';
COMMENT ON COLUMN outboxd.attempts.error IS 'What went wrong; for readers without what may quote a provider.';
COMMENT ON COLUMN outboxd.attempts.response IS 'The beginning of the provider''s answer; NULL for readers.';
COMMENT ON COLUMN outboxd.attempts.worker IS 'The instance that made the call.';
COMMENT ON COLUMN outboxd.attempts.token IS 'The epoch the attempt ran under.';
COMMENT ON COLUMN outboxd.attempts.id IS 'Counts upwards: ORDER BY id DESC LIMIT 20 shows the latest without a scan.';
COMMENT ON COLUMN outboxd.attempts.provider_id IS
    'The provider''s own id of it, on channels whose provider_id says where it stands in the answer.';
