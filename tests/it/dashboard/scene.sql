-- A night with some trouble, for pictures: an hour of traffic, a provider that is down, dead letters of several causes,
-- a paused topic, a campaign, an event consumer that fell behind, what operators did.

-- What operators did.
INSERT INTO outboxd.audit (at, actor, action, subject, affected, detail)
VALUES (now() - interval '3 h', 'alice', 'retry_where', '{"topic": "receipt.issued", "http_status": 503}', 41, NULL),
       (now() - interval '50 min', 'bob', 'pause_channel', 'webhook', 1, NULL), (now() - interval '48 min', 'bob', 'resume_channel', 'webhook', 1, NULL),
       (now() - interval '12 min', 'alice', 'retry', '7', 1, NULL), (now() - interval '4 min', 'alice', 'probe_channel', 'sms', 1, NULL);

-- The last hour, by the minute.
WITH due AS (SELECT n, sum(620 + (160 * sin(n / 7.0))::int + (n % 5) * 9) OVER (ORDER BY n) AS upto FROM generate_series(0, 59) n)
INSERT INTO outboxd.statistics_minute (minute, seq_first, seq_last, published)
SELECT date_trunc('minute', now()) - (60 - d.n) * interval '1 min', lag(d.upto, 1, 0::bigint) OVER (ORDER BY d.n), d.upto, 600 FROM due d
ON CONFLICT DO NOTHING;
INSERT INTO outboxd.statistics_topic (minute, topic, sent, failed, retried)
SELECT date_trunc('minute', now()) - (60 - n) * interval '1 min', t.topic,
       (t.share * (615 + 160 * sin(n / 7.0) + (n * 37) % 23))::int, CASE WHEN n > 44 AND t.topic = 'orders' THEN (n * 13) % 29 + 12 ELSE 0 END, n % 4
  FROM generate_series(1, 59) n, (VALUES ('orders', 0.5), ('receipt.issued', 0.3), ('security', 0.2)) t (topic, share)
ON CONFLICT DO NOTHING;
UPDATE outboxd.statistics_minute m SET sent = t.sent, failed = t.failed, retried = t.retried
  FROM (SELECT minute, sum(sent) AS sent, sum(failed) AS failed, sum(retried) AS retried FROM outboxd.statistics_topic GROUP BY 1) t
 WHERE t.minute = m.minute;
INSERT INTO outboxd.statistics_span (minute, measure, subject, bucket, count)
SELECT date_trunc('minute', now()) - (60 - n) * interval '1 min', 'notify', s.subject, b.bucket + CASE WHEN n > 44 THEN b.shift ELSE 0 END, b.count
  FROM generate_series(1, 59) n, (VALUES ('orders'), ('')) s (subject), LATERAL (VALUES (14 + n % 2, 0, 300), (20, 2, 200), (26, 14, 12 + n % 3)) b (bucket, shift, count)
ON CONFLICT DO NOTHING;
INSERT INTO outboxd.statistics_span (minute, measure, subject, bucket, count)
SELECT date_trunc('minute', now()) - n * interval '1 min', 'call', c.channel, c.bucket, 100
  FROM generate_series(1, 4) n, (VALUES ('push', 24), ('sms', 33), ('alimtalk', 28), ('webhook', 22)) c (channel, bucket)
ON CONFLICT DO NOTHING;
INSERT INTO outboxd.statistics_channel (minute, channel, origin, sent, failed, unknown, last_error, last_error_at)
SELECT date_trunc('minute', now()) - n * interval '1 min', c.channel, c.origin, c.sent, c.failed, 0, c.error,
       CASE WHEN c.error IS NOT NULL THEN now() - n * interval '1 min' END
  FROM generate_series(1, 4) n, (VALUES
       ('push', '', 2310, 21, 'status 410 Gone'),
       ('sms', '', 0, 19, 'connect: connection refused'),
       ('alimtalk', '', 610, 0, NULL),
       ('webhook', 'https://hooks.customer.example:443', 88, 9, 'status 503 Service Unavailable'),
       ('webhook', '', 412, 0, NULL)) c (channel, origin, sent, failed, error)
ON CONFLICT DO NOTHING;

-- What holds and who paused.
INSERT INTO outboxd.channel_state (channel, origin, held_until, reason, openings)
VALUES ('sms', '', clock_timestamp() + interval '4 min', 'failures', 3);
SELECT outboxd.pause('quiz');

-- History: what was sent, and dead letters of four causes.
INSERT INTO outboxd.notification_log (topic, recipient, payload, status, created_at, send_at, finished_at, channel, attempts, http_status, dedup_key)
SELECT (ARRAY['orders', 'receipt.issued', 'security'])[n % 3 + 1], '+82 10 ' || 2000 + n * 7 % 7000 || ' ' || 1000 + n * 13 % 8999,
       jsonb_build_object('text', 'Your order ' || n || ' is on its way'), 'SENT', now() - n * interval '7 s', now() - n * interval '7 s',
       now() - n * interval '7 s' + interval '180 ms', (ARRAY['push', 'alimtalk'])[n % 2 + 1], 1, 200, 'order-' || n
  FROM generate_series(1, 400) n;
INSERT INTO outboxd.notification_log
       (topic, recipient, payload, status, created_at, send_at, finished_at, failed_at, channel, attempts, http_status, error, headers)
SELECT c.topic, 'device-' || md5(c.cause || n), jsonb_build_object('text', 'Your order ' || n || ' is on its way', 'order', n), 'FAILED',
       now() - n * interval '11 s' - interval '2 min', now() - n * interval '11 s' - interval '2 min', now() - n * interval '11 s',
       now() - n * interval '11 s', c.channel, c.attempts,
       c.http_status, c.error, CASE WHEN n = 1 THEN '{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}'::jsonb END
  FROM (VALUES ('gone', 'orders', 'push', 1, 410, 'status 410 Gone', 214),
               ('down', 'security', 'sms', 8, NULL, 'connect: connection refused', 57),
               ('slow', 'receipt.issued', 'alimtalk', 4, 503, 'status 503 Service Unavailable', 12),
               ('late', 'orders', NULL, 0, NULL, 'expired', 3)) c (cause, topic, channel, attempts, http_status, error, count),
       LATERAL generate_series(1, c.count) n;
INSERT INTO outboxd.attempt (notification_id, token, number, started_at, ended_at, duration_ms, instance, http_status, outcome, channel, error, response)
SELECT l.id, a.n, a.n, l.failed_at - (9 - a.n) * interval '12 s', l.failed_at - (9 - a.n) * interval '12 s' + interval '210 ms', 200 + a.n * 7, 1,
       CASE a.channel WHEN 'push' THEN 503 END::smallint, 'failed', a.channel,
       CASE a.channel WHEN 'push' THEN 'status 503 Service Unavailable' ELSE 'connect: connection refused' END,
       CASE a.channel WHEN 'push' THEN '{"error": "overloaded", "retry": true}' END
  FROM (SELECT * FROM outboxd.notification_log WHERE error LIKE 'connect:%' ORDER BY failed_at DESC LIMIT 1) l,
       (VALUES (1, 'push'), (2, 'push'), (3, 'push'), (4, 'sms'), (5, 'sms'), (6, 'sms'), (7, 'sms'), (8, 'sms')) a (n, channel);

-- Work that waits: a paused topic, and rows for the channel that is held.
SELECT count(outboxd.notify('quiz', 'device-' || n, '{"text": "The daily quiz is open"}')) FROM generate_series(1, 1250) n;
INSERT INTO outboxd.notification_log (topic, recipient, payload, send_at)
SELECT 'quiz', 'device-' || n, '{"text": "The daily quiz is open"}', now() + interval '5 h' FROM generate_series(1, 4000) n;

-- Campaigns and their runs.
INSERT INTO outboxd.schedule (name, cron, timezone, topic, audience, lead, spread, catch_up, next_slot)
VALUES ('daily-quiz', '0 9 * * *', 'Asia/Seoul', 'quiz', 'quiz_players', '10 min', '5 min', '1 hour', date_trunc('day', now()) + interval '1 day'),
       ('weekly-digest', '30 7 * * 1', 'Europe/Berlin', 'digest', 'readers', '10 min', '0', '1 hour', date_trunc('week', now()) + interval '7 days 5 h 30 min');
INSERT INTO outboxd.schedule_run (schedule_id, version, schedule, topic, audience, spread, slot, release_at, state, recipients, prepared, released, started_at, prepared_at, ended_at, error)
SELECT s.id, 1, s.name, s.topic, s.audience, '0', d, d, CASE n WHEN 3 THEN 'missed' ELSE 'released' END, CASE n WHEN 3 THEN NULL ELSE 104233 + n * 310 END,
       CASE n WHEN 3 THEN 0 ELSE 104233 + n * 310 END, CASE n WHEN 3 THEN 0 ELSE 104233 + n * 310 END, d - interval '10 min', d - interval '8 min', d + interval '40 s', NULL
  FROM outboxd.schedule s, generate_series(1, 5) n, LATERAL (SELECT date_trunc('day', now()) - n * interval '1 day') t (d) WHERE s.name = 'daily-quiz';

-- Events and who reads them.
INSERT INTO outboxd.event_stream (topic, position) VALUES ('order.paid', 48211), ('order.shipped', 47903);
INSERT INTO outboxd.event_group (topic, name, delivered_id, gone, behind, stream_max, cut_at, cut_from, cut_events)
VALUES ('order.paid', 'billing', '0-1', 0, 12, 100000, NULL, NULL, 0), ('order.paid', 'search', '0-1', 0, 31207, 100000, NULL, NULL, 0),
       ('order.shipped', 'warehouse', '0-1', 0, 4, 100000, NULL, NULL, 0);

-- Bulk actions that have ended.
INSERT INTO outboxd.bulk_action (action, filter, actor, started_at, ended_at, matched, done, stopped_by)
VALUES ('retry', '{"topic": "orders", "http_status": 503}', 'alice', now() - interval '1 day', now() - interval '1 day' + interval '2 min', 18420, 18420, NULL),
       ('cancel', '{"topic": "quiz"}', 'bob', now() - interval '5 h', now() - interval '5 h' + interval '20 s', 9000, 3120, 'bob');
