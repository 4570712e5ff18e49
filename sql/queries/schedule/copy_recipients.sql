-- The next chunk of a run's staged audience becomes PENDING notifications, spread by a hash of the recipient. They expire
-- so long after the time that the slot and the spread give them, however late the run is. The last chunk makes the run
-- prepared.
-- Interleavings: the run's row keeps two owners' chunks apart, and drop_schedule() before or after, never meanwhile; a
-- former owner finds no lease. Whatever happens, a recipient has one row per run: the dedup_key. Staged rows that a
-- server crash has taken are missed by their count: the audience is read again.
-- $1 owner · $2 run · $3 rows at most
-- Locks: the run's row, the chunk, new rows of the log; the lease FOR KEY SHARE. Index: schedule_recipient_pkey, notification_log_dedup.
WITH lease AS MATERIALIZED (SELECT WHERE outboxd._owns_lease('schedules', $1::int)), run AS MATERIALIZED (
    SELECT r.id, r.schedule, r.topic, r.spread, r.expires_after, r.slot, r.release_at, r.staged, r.position,
           r.recipients FROM outboxd.schedule_run r
     WHERE r.id = $2::bigint AND r.state = 'preparing' AND r.staged IS NOT NULL AND EXISTS (SELECT FROM lease) FOR UPDATE
), taken AS (
    DELETE FROM outboxd.schedule_recipient p USING run r
     WHERE p.run_id = r.id AND p.attempt = r.staged AND p.n > r.position AND p.n <= r.position + $3::int
    RETURNING p.recipient, p.payload, p.n
), added AS (
    INSERT INTO outboxd.notification_log (topic, recipient, payload, send_at, expires_at, dedup_key)
    SELECT r.topic, t.recipient, t.payload, r.release_at + o.spread, r.slot + o.spread + r.expires_after,
           'schedule:' || r.id || ':' || CASE WHEN octet_length(t.recipient) <= 64 THEN t.recipient
               ELSE '#' || encode(sha256(convert_to(t.recipient, 'UTF8')), 'hex') END
      FROM taken t CROSS JOIN run r CROSS JOIN LATERAL (
           SELECT r.spread * (('x' || left(md5(r.schedule || ':' || t.recipient), 8))::bit(32)::bigint / 4294967296.0)::float8 AS spread) o
     ORDER BY t.n
    ON CONFLICT (topic, dedup_key) WHERE dedup_key IS NOT NULL DO NOTHING
    RETURNING id
), counted AS (
    SELECT r.id, r.position, r.recipients, (SELECT count(*) FROM taken) AS taken, (SELECT count(*) FROM added) AS added FROM run r
)
UPDATE outboxd.schedule_run r
   SET prepared = r.prepared + c.added,
       position = CASE WHEN c.position + c.taken < c.recipients AND c.taken = 0 THEN 0 ELSE c.position + c.taken END,
       staged = CASE WHEN c.position + c.taken < c.recipients AND c.taken > 0 THEN r.staged END,
       state = CASE WHEN c.position + c.taken < c.recipients THEN 'preparing' ELSE 'prepared' END,
       prepared_at = CASE WHEN c.position + c.taken < c.recipients THEN NULL ELSE clock_timestamp() END
  FROM counted c WHERE r.id = c.id
RETURNING r.state, r.staged IS NOT NULL AS is_staged, c.added
