-- The next chunk of a run's staged audience becomes PENDING notifications, spread by a keyed hash of the recipient: the
-- same for the schedule's name at each slot. Their dedup key has another one, which also depends on the run. Neither
-- tells a recipient to those who try some. They expire so long after the time that the slot and the spread give them,
-- however late the run is. The last chunk makes the run prepared.
-- Interleavings: the run's row keeps two owners' chunks apart, and drop_schedule() before or after, never meanwhile; a
-- former owner finds no lease. Whatever happens, a recipient has one row per run: the dedup_key. Staged rows that a
-- server crash has taken are missed by their count: the audience is read again. A schedule that was altered while its
-- slot came has an earlier run of that slot, of which some was released: whoever has a row of it that was not canceled
-- gets no second one.
-- $1 owner · $2 run · $3 rows at most
-- Locks: the run's row, the chunk, new rows of the log; the lease FOR KEY SHARE. Index: schedule_recipient_pkey,
-- notification_log_dedup, a_slot_runs_once.
WITH lease AS MATERIALIZED (SELECT WHERE outboxd._owns_lease('schedules', $1::int)), run AS MATERIALIZED (
    SELECT r.id, r.schedule_id, r.schedule, r.topic, r.spread, r.expires_after, r.slot, r.release_at, r.staged, r.position,
           r.recipients, (SELECT k.secret FROM outboxd.schedule_secret k) AS secret FROM outboxd.schedule_run r
     WHERE r.id = $2::bigint AND r.state = 'preparing' AND r.staged IS NOT NULL AND EXISTS (SELECT FROM lease)
       AND r.schedule_id > (SELECT o.schedules_through FROM outboxd.origin o) FOR UPDATE
), earlier AS MATERIALIZED (
    SELECT e.id, e.topic FROM run r CROSS JOIN LATERAL (
           SELECT e.id, e.topic FROM outboxd.schedule_run e
            WHERE e.schedule_id = r.schedule_id AND e.slot = r.slot AND e.id < r.id OFFSET 0) e
), taken AS (
    DELETE FROM outboxd.schedule_recipient p USING run r
     WHERE p.run_id = r.id AND p.attempt = r.staged AND p.n > r.position AND p.n <= r.position + $3::int
    RETURNING p.recipient, p.payload, p.n
), added AS (
    INSERT INTO outboxd.notification_log (topic, recipient, payload, send_at, expires_at, dedup_key)
    SELECT r.topic, t.recipient, t.payload, r.release_at + o.spread, r.slot + o.spread + r.expires_after,
           'schedule:' || r.id || ':' || left(encode(sha256(o.hash || int8send(r.id)), 'hex'), 32)
      FROM taken t CROSS JOIN run r CROSS JOIN LATERAL (
           SELECT sha256(r.secret || sha256(r.secret || convert_to(r.schedule || ':' || t.recipient, 'UTF8'))) AS hash OFFSET 0) h
     CROSS JOIN LATERAL (
           SELECT h.hash, r.spread * (('x' || encode(substr(h.hash, 1, 4), 'hex'))::bit(32)::bigint / 4294967296.0)::float8 AS spread) o
     WHERE (SELECT l.id FROM earlier e CROSS JOIN LATERAL (
                   SELECT l.id FROM outboxd.notification_log l
                    WHERE l.topic = e.topic AND l.status <> 'CANCELED'
                      AND l.dedup_key = 'schedule:' || e.id || ':' || left(encode(sha256(o.hash || int8send(e.id)), 'hex'), 32) OFFSET 0) l
             LIMIT 1) IS NULL
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
