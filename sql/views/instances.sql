-- Instances of the last day, by heartbeat and the database's clock.
CREATE OR REPLACE VIEW outboxd.instances AS
SELECT i.id AS worker, i.host, i.pid, i.version, i.roles,
       CASE WHEN i.fallback_since IS NULL THEN i.queue_kind ELSE 'memory' END AS queue,
       CASE WHEN i.stopped_at IS NOT NULL THEN 'stopped'
            WHEN i.heartbeat_at < clock_timestamp() - i.ttl THEN 'dead'
            WHEN i.draining THEN 'draining' ELSE 'alive' END AS state,
       i.in_flight, i.heartbeat_at, clock_timestamp() - i.heartbeat_at AS heartbeat_age, i.started_at, i.stopped_at,
       coalesce(r.clock_skew_ms, i.clock_skew_ms) AS clock_skew_ms
  FROM outboxd.instance i LEFT JOIN outboxd.instance_report r ON r.instance = i.id
 WHERE i.heartbeat_at > now() - interval '1 day';

COMMENT ON VIEW outboxd.instances IS
    'Instances of outboxd that run or ran within the last day, also those that stopped or died; outboxd.workers has those '
    'at work.';
COMMENT ON COLUMN outboxd.instances.worker IS 'The instance''s number, as in notifications.worker and attempts.worker.';
COMMENT ON COLUMN outboxd.instances.host IS 'Where it runs.';
COMMENT ON COLUMN outboxd.instances.pid IS 'Its process id there.';
COMMENT ON COLUMN outboxd.instances.version IS 'Its version.';
COMMENT ON COLUMN outboxd.instances.roles IS 'What it does: producer, relay, worker, scheduler, api.';
COMMENT ON COLUMN outboxd.instances.queue IS 'memory, list or stream; memory also while it goes on without its Redis.';
COMMENT ON COLUMN outboxd.instances.state IS 'alive, draining, stopped, or dead: no heartbeat for its TTL.';
COMMENT ON COLUMN outboxd.instances.in_flight IS 'Calls under way at its last heartbeat.';
COMMENT ON COLUMN outboxd.instances.heartbeat_at IS 'Its last heartbeat.';
COMMENT ON COLUMN outboxd.instances.heartbeat_age IS 'How long ago that was.';
COMMENT ON COLUMN outboxd.instances.started_at IS 'When it started.';
COMMENT ON COLUMN outboxd.instances.stopped_at IS 'When it signed off.';
COMMENT ON COLUMN outboxd.instances.clock_skew_ms IS 'Its clock minus the database''s, in milliseconds.';
