-- A schedule moves on to its next slot, or to the error that keeps it from having one, and the slots passed become
-- runs, in one statement. A slot that comes late begins its spread now.
-- Interleavings: of two owners one moves the schedule on and the other finds its next slot changed; a schedule altered
-- or dropped meanwhile has another version or is gone: nothing happens; a former owner finds no lease.
-- $1 owner · $2 schedule · $3 its version · $4 its next slot as it was (may be NULL) ·
-- $5 its next slot now (may be NULL) · $6 error (may be NULL) · $7 slots ·
-- $8 their states, preparing, missed or paused · $9 their reasons
-- Locks: the schedule's row; the lease FOR KEY SHARE. Index: schedule_pkey, a_slot_runs_once.
WITH lease AS MATERIALIZED (SELECT WHERE outboxd._owns_lease('schedules', $1::int)), moved AS (
    UPDATE outboxd.schedule s SET next_slot = $5::timestamptz, error = $6::text
     WHERE s.id = $2::bigint AND s.version = $3::int AND s.next_slot IS NOT DISTINCT FROM $4::timestamptz AND EXISTS (SELECT FROM lease)
       AND s.id > (SELECT o.schedules_through FROM outboxd.origin o)
    RETURNING s.id, s.version, s.name, s.topic, s.audience, s.spread, s.expires_after
)
INSERT INTO outboxd.schedule_run (schedule_id, version, schedule, topic, audience, spread, expires_after, slot, release_at, state, error, ended_at)
SELECT m.id, m.version, m.name, m.topic, m.audience, m.spread, m.expires_after, u.slot, greatest(u.slot, clock_timestamp()),
       u.state, u.error, CASE WHEN u.state <> 'preparing' THEN clock_timestamp() END
  FROM moved m, unnest($7::timestamptz[], $8::text[], $9::text[]) u(slot, state, error)
ON CONFLICT ON CONSTRAINT a_slot_runs_once DO NOTHING
RETURNING id
