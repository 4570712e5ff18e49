-- One step of the walk up notification_log: looks at the next $2 rows by id and deletes those that ended long enough
-- ago, with their attempts; their dedup keys go with them. Rows kept longer or still alive are passed over and found
-- by the next walk. Rows created after the border end it for now: none of them can be over.
-- Interleavings: a former owner finds no lease; its progress row keeps two steps apart; retry() and a late success lock
-- the row first and are passed over (SKIP LOCKED), or come second and find no row; notify() with the dedup_key of a
-- row being deleted waits for this one short statement and then inserts its own.
-- $1 owner · $2 rows to look at · $3 SENT, $4 FAILED, $5 CANCELED kept for, in ms · $6 border in ms · $7 a new walk
-- after, in ms
-- Locks: the rows deleted; its progress row; the lease FOR KEY SHARE. Index: notification_log_pkey, attempt_notification.
WITH lease AS MATERIALIZED (
    SELECT d.name FROM outboxd.leader_lease d
     WHERE d.name = 'retention' AND d.owner = $1::int AND d.until > clock_timestamp() FOR KEY SHARE
), walk AS MATERIALIZED (
    SELECT w.name, w.is_caught_up AND w.restarted_at < clock_timestamp() - $7::bigint * interval '1 ms' AS starts, w.position
      FROM outboxd.retention_progress w WHERE w.name = 'notification_log' AND EXISTS (SELECT FROM lease) FOR UPDATE
), seen AS MATERIALIZED (
    SELECT l.id, l.created_at < clock_timestamp() - $6::bigint * interval '1 ms' AS is_old
      FROM walk w CROSS JOIN LATERAL (
           SELECT l.id, l.created_at FROM outboxd.notification_log l
            WHERE l.id > CASE WHEN w.starts THEN 0 ELSE w.position END ORDER BY l.id LIMIT $2::int) l
), over AS MATERIALIZED (
    SELECT l.id FROM seen s JOIN outboxd.notification_log l ON l.id = s.id
     WHERE s.is_old AND l.finished_at < clock_timestamp() - CASE l.status WHEN 'SENT' THEN $3::bigint
           WHEN 'FAILED' THEN $4::bigint ELSE $5::bigint END * interval '1 ms'
     ORDER BY l.id FOR UPDATE OF l SKIP LOCKED
), gone AS (
    DELETE FROM outboxd.notification_log l USING over o WHERE l.id = o.id RETURNING l.id
), attempts AS (
    DELETE FROM outboxd.attempt a USING over o WHERE a.notification_id = o.id RETURNING a.id
), moved AS (
    UPDATE outboxd.retention_progress w
       SET position = coalesce((SELECT max(s.id) FROM seen s WHERE s.is_old), CASE WHEN k.starts THEN 0 ELSE w.position END),
           is_caught_up = (SELECT count(*) FROM seen s WHERE s.is_old) < $2::int,
           restarted_at = CASE WHEN k.starts THEN clock_timestamp() ELSE w.restarted_at END
      FROM walk k WHERE w.name = k.name
    RETURNING w.is_caught_up
)
SELECT (SELECT m.is_caught_up FROM moved m) AS is_caught_up, (SELECT count(*) FROM gone) AS deleted,
       (SELECT count(*) FROM attempts) AS attempts
