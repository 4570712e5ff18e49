-- Whether an instance runs: what it counted holds, else whoever asks counts.
-- Locks: none. Index: none, the table is small.
CREATE OR REPLACE VIEW outboxd._alive AS
SELECT EXISTS (SELECT FROM outboxd.instance i WHERE i.stopped_at IS NULL AND i.heartbeat_at >= now() - i.ttl) AS any;
