-- An instance starts: its number, this installation's id, what the database's clock says, and the key that the
-- installation's HTTP endpoints sign with. Its topics are told at once: who has a route that it lacks must know before it
-- takes anything.
-- Interleavings: none: nobody knows the row yet.
-- $1 heartbeat TTL in ms · $2 pid · $3 roles · $4 queue kind · $5 host · $6 version
-- $7 the topics that it has routes for (NULL: it only relays)
-- Locks: its own new rows. Index: none.
WITH registered AS (
    INSERT INTO outboxd.instance (ttl, pid, roles, queue_kind, host, version)
    VALUES ($1::bigint * interval '1 ms', $2::int, $3::text[], $4::text, $5::text, $6::text) RETURNING id, started_at
), reported AS (
    INSERT INTO outboxd.instance_report (instance, clock_skew_ms, topics)
    SELECT r.id, 0, $7::text[] FROM registered r WHERE $7::text[] IS NOT NULL
)
SELECT r.id, (SELECT s.install_id FROM outboxd.setting s), r.started_at, (SELECT s.signing_key FROM outboxd.setting s) FROM registered r
