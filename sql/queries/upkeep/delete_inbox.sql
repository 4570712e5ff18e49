-- One step of the walk up outboxd.inbox, by the time of receipt: deletes the $2 oldest rows past the last step that are
-- older than $3. A receipt that committed long after its time is found by the next walk.
-- Interleavings: a former owner finds no lease; its progress row keeps two steps apart; respond() locks its row first and
-- is passed over; receive() of a row being deleted waits for this one short statement and is then the first.
-- $1 owner · $2 rows to look at · $3 kept for, in ms · $4 a new walk after, in ms
-- Locks: the rows deleted; its progress row; the lease FOR KEY SHARE. Index: inbox_received, inbox_pkey.
WITH lease AS MATERIALIZED (
    SELECT d.name FROM outboxd.leader_lease d
     WHERE d.name = 'retention' AND d.owner = $1::int AND d.until > clock_timestamp() FOR KEY SHARE
), walk AS MATERIALIZED (
    SELECT w.name, w.is_caught_up AND w.restarted_at < clock_timestamp() - $4::bigint * interval '1 ms' AS starts, w.position
      FROM outboxd.retention_progress w WHERE w.name = 'inbox' AND EXISTS (SELECT FROM lease) FOR UPDATE
), over AS MATERIALIZED (
    SELECT i.consumer, i.message_id, i.received_at
      FROM walk w CROSS JOIN LATERAL (
           SELECT i.consumer, i.message_id, i.received_at FROM outboxd.inbox i
            WHERE i.received_at >= 'epoch'::timestamptz + CASE WHEN w.starts THEN 0 ELSE w.position END * interval '1 microsecond'
              AND i.received_at < clock_timestamp() - $3::bigint * interval '1 ms'
            ORDER BY i.received_at LIMIT $2::int FOR UPDATE SKIP LOCKED) i
), gone AS (
    DELETE FROM outboxd.inbox i USING over o WHERE i.consumer = o.consumer AND i.message_id = o.message_id RETURNING i.consumer
), moved AS (
    UPDATE outboxd.retention_progress w
       SET position = coalesce((SELECT (extract(epoch FROM max(o.received_at)) * 1000000)::bigint FROM over o),
                               CASE WHEN k.starts THEN 0 ELSE w.position END),
           is_caught_up = (SELECT count(*) FROM over) < $2::int,
           restarted_at = CASE WHEN k.starts THEN clock_timestamp() ELSE w.restarted_at END
      FROM walk k WHERE w.name = k.name
    RETURNING w.is_caught_up
)
SELECT (SELECT m.is_caught_up FROM moved m) AS is_caught_up, (SELECT count(*) FROM gone) AS deleted
