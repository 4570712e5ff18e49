-- An instance starts: its number, this installation's id, what the database's clock says, and the key that the
-- installation's HTTP endpoints sign with.
-- Interleavings: none: nobody knows the row yet.
-- $1 heartbeat TTL in ms · $2 pid · $3 roles · $4 queue kind · $5 host · $6 version
-- Locks: its own new row. Index: none.
INSERT INTO outboxd.instance (ttl, pid, roles, queue_kind, host, version)
VALUES ($1::bigint * interval '1 ms', $2::int, $3::text[], $4::text, $5::text, $6::text)
RETURNING id, (SELECT install_id FROM outboxd.setting), started_at, (SELECT signing_key FROM outboxd.setting)
