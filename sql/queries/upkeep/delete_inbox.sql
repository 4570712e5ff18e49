-- One step of retention in outboxd.inbox, by the time of receipt: deletes the $2 oldest rows past the last step that are
-- older than $3. A receipt that committed long after its time is found by the next scan.
-- Interleavings: those of _begin_retention_step(); respond() locks its row first and is
-- passed over; receive() of a row being deleted waits for this one short statement and is then the first.
-- $1 owner · $2 rows to look at · $3 kept for, in ms · $4 a new scan after, in ms
-- Locks: the rows deleted; its progress row; the lease FOR KEY SHARE. Index: inbox_received, inbox_pkey.
WITH begun AS MATERIALIZED (
    SELECT outboxd._begin_retention_step('inbox', $1::int, $4::bigint * interval '1 ms') AS after
), over AS MATERIALIZED (
    SELECT i.consumer, i.message_id, i.received_at
      FROM begun b CROSS JOIN LATERAL (
           SELECT i.consumer, i.message_id, i.received_at FROM outboxd.inbox i
            WHERE i.received_at >= 'epoch'::timestamptz + b.after * interval '1 microsecond'
              AND i.received_at < clock_timestamp() - $3::bigint * interval '1 ms'
            ORDER BY i.received_at LIMIT $2::int FOR UPDATE SKIP LOCKED) i
), gone AS (
    DELETE FROM outboxd.inbox i USING over o WHERE i.consumer = o.consumer AND i.message_id = o.message_id RETURNING i.consumer
)
SELECT (SELECT outboxd._end_retention_step('inbox', (SELECT (extract(epoch FROM max(o.received_at)) * 1000000)::bigint FROM over o),
                                           (SELECT count(*) < $2::int FROM over)) FROM begun b WHERE b.after IS NOT NULL),
       (SELECT count(*) FROM gone) AS deleted
