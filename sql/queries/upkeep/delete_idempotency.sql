-- One step of retention in outboxd.idempotency, by time: deletes the $2 oldest rows past the last step that are older than
-- $3. An answer that committed long after its time is found by the next scan.
-- Interleavings: those of _begin_retention_step(); a repeat whose row is being deleted still sees it, or is a first request.
-- $1 owner · $2 rows to look at · $3 kept for, in ms · $4 a new scan after, in ms
-- Locks: the rows deleted; its progress row; the lease FOR KEY SHARE. Index: idempotency_at, idempotency_pkey.
WITH begun AS MATERIALIZED (
    SELECT outboxd._begin_retention_step('idempotency', $1::int, $4::bigint * interval '1 ms') AS after
), over AS MATERIALIZED (
    SELECT i.token, i.key, i.at
      FROM begun b CROSS JOIN LATERAL (
           SELECT i.token, i.key, i.at FROM outboxd.idempotency i
            WHERE i.at >= 'epoch'::timestamptz + b.after * interval '1 microsecond'
              AND i.at < clock_timestamp() - $3::bigint * interval '1 ms'
            ORDER BY i.at LIMIT $2::int FOR UPDATE SKIP LOCKED) i
), gone AS (
    DELETE FROM outboxd.idempotency i USING over o WHERE i.token = o.token AND i.key = o.key RETURNING i.token
)
SELECT (SELECT outboxd._end_retention_step('idempotency', (SELECT (extract(epoch FROM max(o.at)) * 1000000)::bigint FROM over o),
                                           (SELECT count(*) < $2::int FROM over)) FROM begun b WHERE b.after IS NOT NULL),
       (SELECT count(*) FROM gone) AS deleted
