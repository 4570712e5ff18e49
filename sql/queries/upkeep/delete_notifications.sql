-- One step of retention in notification_log: reads the next $2 rows by id and deletes those that ended long enough
-- ago, with their attempts; their dedup keys go with them. Rows kept longer or still alive are passed over and found
-- by the next scan. Rows created after the border end it for now: none of them can be over.
-- Interleavings: those of _begin_retention_step(); retry() and a late success lock the row first and are
-- passed over (SKIP LOCKED), or come second and find no row; notify() with the dedup_key of a
-- row being deleted waits for this one short statement and then inserts its own.
-- $1 owner · $2 rows to read · $3 SENT, $4 FAILED, $5 CANCELED kept for, in ms · $6 border in ms ·
-- $7 a new scan after, in ms
-- Locks: the rows deleted; its progress row; the lease FOR KEY SHARE. Index: notification_log_pkey,
-- attempt_notification.
WITH begun AS MATERIALIZED (
    SELECT outboxd._begin_retention_step('notification_log', $1::int, $7::bigint * interval '1 ms') AS after
), seen AS MATERIALIZED (
    SELECT l.id, l.created_at < clock_timestamp() - $6::bigint * interval '1 ms' AS is_old
      FROM begun b CROSS JOIN LATERAL (
           SELECT l.id, l.created_at FROM outboxd.notification_log l WHERE l.id > b.after ORDER BY l.id LIMIT $2::int) l
), over AS MATERIALIZED (
    SELECT l.id FROM seen s JOIN outboxd.notification_log l ON l.id = s.id
     WHERE s.is_old AND l.finished_at < clock_timestamp() - CASE l.status WHEN 'SENT' THEN $3::bigint
           WHEN 'FAILED' THEN $4::bigint ELSE $5::bigint END * interval '1 ms'
     ORDER BY l.id FOR UPDATE OF l SKIP LOCKED
), gone AS (
    DELETE FROM outboxd.notification_log l USING over o WHERE l.id = o.id RETURNING l.id
), attempts AS (
    DELETE FROM outboxd.attempt a USING over o WHERE a.notification_id = o.id RETURNING a.id
), old AS MATERIALIZED (
    SELECT max(s.id) AS through, count(*) < $2::int AS is_caught_up FROM seen s WHERE s.is_old
)
SELECT (SELECT outboxd._end_retention_step('notification_log', o.through, o.is_caught_up) FROM old o, begun b WHERE b.after IS NOT NULL),
       (SELECT count(*) FROM gone) AS deleted, (SELECT count(*) FROM attempts) AS attempts
