-- One step of the walk up outboxd.idempotency, by time: deletes the $2 oldest rows past the last step that are older than
-- $3. An answer that committed long after its time is found by the next walk.
-- Interleavings: a former owner finds no lease; its progress row keeps two steps apart; a repeat whose row is being deleted
-- still sees it, or is a first request.
-- $1 owner · $2 rows to look at · $3 kept for, in ms · $4 a new walk after, in ms
-- Locks: the rows deleted; its progress row; the lease FOR KEY SHARE. Index: idempotency_at, idempotency_pkey.
WITH lease AS MATERIALIZED (
    SELECT d.name FROM outboxd.leader_lease d
     WHERE d.name = 'retention' AND d.owner = $1::int AND d.until > clock_timestamp() FOR KEY SHARE
), walk AS MATERIALIZED (
    SELECT w.name, w.is_caught_up AND w.restarted_at < clock_timestamp() - $4::bigint * interval '1 ms' AS starts, w.position
      FROM outboxd.retention_progress w WHERE w.name = 'idempotency' AND EXISTS (SELECT FROM lease) FOR UPDATE
), over AS MATERIALIZED (
    SELECT i.token, i.key, i.at
      FROM walk w CROSS JOIN LATERAL (
           SELECT i.token, i.key, i.at FROM outboxd.idempotency i
            WHERE i.at >= 'epoch'::timestamptz + CASE WHEN w.starts THEN 0 ELSE w.position END * interval '1 microsecond'
              AND i.at < clock_timestamp() - $3::bigint * interval '1 ms'
            ORDER BY i.at LIMIT $2::int FOR UPDATE SKIP LOCKED) i
), gone AS (
    DELETE FROM outboxd.idempotency i USING over o WHERE i.token = o.token AND i.key = o.key RETURNING i.token
), moved AS (
    UPDATE outboxd.retention_progress w
       SET position = coalesce((SELECT (extract(epoch FROM max(o.at)) * 1000000)::bigint FROM over o),
                               CASE WHEN k.starts THEN 0 ELSE w.position END),
           is_caught_up = (SELECT count(*) FROM over) < $2::int,
           restarted_at = CASE WHEN k.starts THEN clock_timestamp() ELSE w.restarted_at END
      FROM walk k WHERE w.name = k.name
    RETURNING w.is_caught_up
)
SELECT (SELECT m.is_caught_up FROM moved m) AS is_caught_up, (SELECT count(*) FROM gone) AS deleted
