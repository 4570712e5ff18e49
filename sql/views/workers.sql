-- Instances at work: with a fresh heartbeat by the database's clock. outboxd.instances has those that stopped or died
-- too.
CREATE OR REPLACE VIEW outboxd.workers AS
SELECT i.worker, i.host, i.pid, i.version, i.roles, i.queue, i.state, i.in_flight, i.heartbeat_at, i.heartbeat_age,
       i.started_at, i.stopped_at, i.clock_skew_ms
  FROM outboxd.instances i WHERE i.state IN ('alive', 'draining');

COMMENT ON VIEW outboxd.workers IS
    'Instances of outboxd that are at work now. Those that stopped or died within the last day: outboxd.instances.';
COMMENT ON COLUMN outboxd.workers.worker IS 'The instance''s number, as in notifications.worker and attempts.worker.';
COMMENT ON COLUMN outboxd.workers.host IS 'Where it runs.';
COMMENT ON COLUMN outboxd.workers.pid IS 'Its process id there.';
COMMENT ON COLUMN outboxd.workers.version IS 'Its version.';
COMMENT ON COLUMN outboxd.workers.roles IS 'What it does: producer, relay, worker, scheduler, api.';
COMMENT ON COLUMN outboxd.workers.queue IS 'memory, list or stream; memory also while it goes on without its Redis.';
COMMENT ON COLUMN outboxd.workers.state IS 'alive, or draining: it finishes what it has and stops.';
COMMENT ON COLUMN outboxd.workers.in_flight IS 'Calls under way at its last heartbeat.';
COMMENT ON COLUMN outboxd.workers.heartbeat_at IS 'Its last heartbeat.';
COMMENT ON COLUMN outboxd.workers.heartbeat_age IS 'How long ago that was.';
COMMENT ON COLUMN outboxd.workers.started_at IS 'When it started.';
COMMENT ON COLUMN outboxd.workers.stopped_at IS 'When it signed off: never, while it is listed here.';
COMMENT ON COLUMN outboxd.workers.clock_skew_ms IS 'Its clock minus the database''s, in milliseconds.';
