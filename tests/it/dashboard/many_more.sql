-- Beside many topics: campaigns, consumer groups, streams and instances, more than a page of each, some in trouble.
INSERT INTO outboxd.event_stream (topic, position) SELECT 'domain.events.of.tenant-' || lpad(n::text, 5, '0'), n * 17 FROM generate_series(1, 200) n;
INSERT INTO outboxd.event_group (topic, name, delivered_id, gone, behind, stream_max)
SELECT 'domain.events.of.tenant-' || lpad(n::text, 5, '0'), 'billing', '0-0', 0, n * 11, 100000 FROM generate_series(1, 120) n;
UPDATE outboxd.event_group SET cut_at = now() - interval '5 min', cut_events = 1, cut_from = now() - interval '1 h'
 WHERE topic = 'domain.events.of.tenant-00117';
INSERT INTO outboxd.event_outbox (event_id, topic) SELECT n, 'domain.events.of.tenant-' || lpad((n % 80)::text, 5, '0') FROM generate_series(1, 400) n;
INSERT INTO outboxd.instance (ttl, pid, roles, queue_kind, host, version, stopped_at)
SELECT '1 h', n, '{worker}', 'memory', 'outboxd-7d9f8b6c5d-abcde.cluster-' || n, '0.1.0', now() - interval '1 h' FROM generate_series(1, 130) n;
INSERT INTO outboxd.bulk_action (action, filter, matched, done, actor, ended_at)
SELECT 'retry', '{"topic": "orders"}', 10, 10, 'alice', now() FROM generate_series(1, 40);
CREATE SCHEMA app;
CREATE VIEW app.audience AS SELECT 'r' AS recipient, '{}'::jsonb AS payload;
INSERT INTO outboxd.schedule (name, cron, timezone, topic, audience, lead, spread, catch_up, paused_at)
SELECT 'weekly-digest-of-tenant-' || lpad(n::text, 5, '0'), '0 9 * * 1', 'Asia/Seoul', 'tenant-' || lpad(n::text, 5, '0'), 'app.audience', '0', '0', '0',
       CASE WHEN n = 117 THEN now() END
  FROM generate_series(1, 120) n;
