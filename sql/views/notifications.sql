-- One row per notification: its record, and what is known of its live work while it is QUEUED. PROCESSING is a fact of
-- the outbox row. What the last attempt said is in the record once it has ended; until then, and for one that was
-- canceled on its way, it is looked up. Not by a join: it costs one probe for each such row and column that is asked
-- for, and a count of all rows nothing. Readers see no payload and no whole recipient: see _sees_all().
-- Locks: none. Index: notification_log_pkey, notification_log_recipient, outbox_pkey, attempt_notification.
CREATE OR REPLACE VIEW outboxd.notifications AS
SELECT l.id, l.topic, CASE WHEN outboxd._sees_all() THEN l.recipient ELSE outboxd._masked(l.recipient) END AS recipient,
       CASE WHEN o.state = 'processing' THEN 'PROCESSING' ELSE l.status::text END AS status,
       coalesce(l.channel, (SELECT a.channel FROM outboxd.attempt a
            WHERE a.notification_id = l.id AND l.status IN ('QUEUED', 'CANCELED') ORDER BY a.id DESC LIMIT 1)) AS channel,
       coalesce(o.attempts, l.attempts) AS attempts,
       CASE WHEN l.status = 'PENDING' THEN l.send_at WHEN o.state = 'ready' THEN coalesce(o.retry_at, l.send_at) END
           AS next_attempt_at,
       CASE WHEN o.state = 'processing' THEN o.instance END AS worker,
       CASE WHEN outboxd._sees_all() THEN coalesce(l.error, (SELECT a.error FROM outboxd.attempt a
            WHERE a.notification_id = l.id AND l.status IN ('QUEUED', 'CANCELED') ORDER BY a.id DESC LIMIT 1))
            ELSE outboxd._cause(coalesce(l.error, (SELECT a.error FROM outboxd.attempt a
                WHERE a.notification_id = l.id AND l.status IN ('QUEUED', 'CANCELED') ORDER BY a.id DESC LIMIT 1))) END AS error,
       coalesce(l.http_status, (SELECT a.http_status FROM outboxd.attempt a
            WHERE a.notification_id = l.id AND l.status IN ('QUEUED', 'CANCELED') ORDER BY a.id DESC LIMIT 1)) AS http_status,
       CASE WHEN outboxd._sees_all() THEN l.payload END AS payload, CASE WHEN outboxd._sees_all() THEN l.headers END AS headers,
       CASE WHEN outboxd._sees_all() THEN l.dedup_key ELSE outboxd._masked(l.dedup_key) END AS dedup_key,
       CASE WHEN outboxd._sees_all() THEN l.ordering_key ELSE outboxd._masked(l.ordering_key) END AS ordering_key,
       l.created_at, l.send_at, l.expires_at, l.finished_at,
       coalesce(l.provider_id, (SELECT a.provider_id FROM outboxd.attempt a
            WHERE a.notification_id = l.id AND l.status IN ('QUEUED', 'CANCELED') ORDER BY a.id DESC LIMIT 1)) AS provider_id
  FROM outboxd.notification_log l LEFT JOIN outboxd.outbox o ON o.id = l.id AND l.status = 'QUEUED'
 WHERE outboxd._planned_for(outboxd._sees_all());

COMMENT ON VIEW outboxd.notifications IS 'One row per notification: where it is, what was tried, what comes next.';
COMMENT ON COLUMN outboxd.notifications.id IS 'The id that notify() returned.';
COMMENT ON COLUMN outboxd.notifications.topic IS 'What it is about; decides the route.';
COMMENT ON COLUMN outboxd.notifications.recipient IS 'Device token, phone number, URL …, as the app gave it; for readers its ends, as in +8****78, which is also what a WHERE compares.';
COMMENT ON COLUMN outboxd.notifications.status IS 'PENDING, QUEUED, PROCESSING, SENT, FAILED or CANCELED.';
COMMENT ON COLUMN outboxd.notifications.channel IS
    'The channel that delivered it, or was tried last; see outboxd.stuck for the one it waits for.';
COMMENT ON COLUMN outboxd.notifications.attempts IS 'Calls to providers so far, all channels.';
COMMENT ON COLUMN outboxd.notifications.next_attempt_at IS 'When it is tried next, if it waits.';
COMMENT ON COLUMN outboxd.notifications.worker IS
    'The instance that is calling the provider now (see outboxd.workers).';
COMMENT ON COLUMN outboxd.notifications.error IS
    'What the last attempt said, also while it is tried again; NULL once it is SENT. For readers without what may quote a provider.';
COMMENT ON COLUMN outboxd.notifications.http_status IS
    'The provider''s HTTP status at the last attempt, if it answered.';
COMMENT ON COLUMN outboxd.notifications.payload IS 'As the app gave it; NULL for readers.';
COMMENT ON COLUMN outboxd.notifications.headers IS 'As the app gave them; NULL for readers.';
COMMENT ON COLUMN outboxd.notifications.dedup_key IS 'Enqueued once per topic: the same key in another topic is another notification. For readers its ends.';
COMMENT ON COLUMN outboxd.notifications.ordering_key IS 'Rows of a topic with the same key are sent one after the other: the same key in another topic is another key. For readers its ends.';
COMMENT ON COLUMN outboxd.notifications.created_at IS 'When notify() ran.';
COMMENT ON COLUMN outboxd.notifications.send_at IS 'Not before this time.';
COMMENT ON COLUMN outboxd.notifications.expires_at IS 'Past this time it is not sent but FAILED.';
COMMENT ON COLUMN outboxd.notifications.finished_at IS 'When it became SENT, FAILED or CANCELED.';
COMMENT ON COLUMN outboxd.notifications.provider_id IS
    'The provider''s own id of it, on channels whose provider_id says where it stands in the answer.';
