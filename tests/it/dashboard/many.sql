-- A platform with many tenants: $topics topics and as many origins. Four topics whose names sort last are the ones to look
-- at: one is paused, one fails, one has waited the longest, one has the most dead letters.

-- Each topic has a dead letter, every third one has work.
INSERT INTO outboxd.notification_log (topic, recipient, payload, status, created_at, finished_at, failed_at, channel, attempts, http_status, error)
SELECT 'tenant-' || lpad(n::text, 5, '0'), 'r', '{}', 'FAILED', now() - interval '1 day', now() - n * interval '1 s', now() - n * interval '1 s',
       'webhook', 3, 500 + n % 4, 'status ' || 500 + n % 4 || ': no room'
  FROM generate_series(1, $topics) n;
INSERT INTO outboxd.notification_log (topic, recipient, payload, status, created_at, finished_at, failed_at, channel, attempts, error)
SELECT 'zz-most-dead', 'r', '{}', 'FAILED', now() - interval '1 day', now() - interval '2 h', now() - interval '2 h', 'webhook', 3, 'timeout'
  FROM generate_series(1, 7);
SELECT count(outboxd.notify('tenant-' || lpad(n::text, 5, '0'), 'r', '{}')) FROM generate_series(3, $topics, 3) n;
INSERT INTO outboxd.notification_log (topic, recipient, payload, status, created_at, send_at)
VALUES ('zz-oldest', 'r', '{}', 'QUEUED', now() - interval '3 h', now() - interval '3 h');
INSERT INTO outboxd.outbox (id, topic) SELECT id, topic FROM outboxd.notification_log WHERE topic = 'zz-oldest';
-- Between two attempts, so that nothing changes while one looks.
UPDATE outboxd.outbox SET retry_at = now() + interval '1 h', attempts = 1;
SELECT outboxd.pause('zz-paused');

-- The last hour: every topic sent a little, one failed.
INSERT INTO outboxd.statistics_topic (minute, topic, sent)
SELECT date_trunc('minute', now()) - m * interval '1 min', 'tenant-' || lpad(n::text, 5, '0'), 2
  FROM generate_series(1, $topics) n, generate_series(1, 59, 20) m;
INSERT INTO outboxd.statistics_topic (minute, topic, sent, failed) VALUES (date_trunc('minute', now()) - interval '2 min', 'zz-failing', 1, 5);
INSERT INTO outboxd.statistics_span (minute, measure, subject, bucket, count)
SELECT date_trunc('minute', now()) - interval '1 min', 'notify', 'tenant-' || lpad(n::text, 5, '0'), 20, 2 FROM generate_series(1, $topics) n;

-- Customers' endpoints: the last two by name are in trouble.
INSERT INTO outboxd.statistics_channel (minute, channel, origin, sent, failed, last_error, last_error_at)
SELECT date_trunc('minute', now()) - interval '1 min', 'hooks', 'https://customer-' || lpad(n::text, 5, '0') || '.example:443', 9,
       CASE WHEN n = $origins THEN 30 ELSE 0 END, CASE WHEN n = $origins THEN 'status 503 Service Unavailable' END,
       CASE WHEN n = $origins THEN now() END
  FROM generate_series(1, $origins) n;
INSERT INTO outboxd.channel_state (channel, origin, held_until, reason, openings)
VALUES ('hooks', 'https://zz.example:443', clock_timestamp() + interval '4 min', 'failures', 3);
ANALYZE;
