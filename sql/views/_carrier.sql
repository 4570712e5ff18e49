-- The instances that run and publish or call, with the topics that each has routes for, `default` among them. NULL: it only
-- relays and publishes everything, or it has not reported yet.
-- Locks: none. Index: instance_report_pkey.
CREATE OR REPLACE VIEW outboxd._carrier AS
SELECT i.id, i.host, i.roles, r.topics
  FROM outboxd.instance i LEFT JOIN outboxd.instance_report r ON r.instance = i.id
 WHERE i.stopped_at IS NULL AND i.heartbeat_at >= now() - i.ttl AND i.roles && '{relay,worker}';
