-- Rows of the log that have the number of a letter about to be filed get a new one, and their attempts with them: the sequence
-- was set back, by a restore that forgot it for instance. First the sequence is set beyond all there is. Nothing is lost:
-- both notifications are kept, and the one that was called keeps the number it was called under.
-- $1 ids
-- Locks: the rows. Index: notification_log_pkey, outbox_pkey, attempt_notification.
WITH ahead AS MATERIALIZED (
    SELECT CASE WHEN h.highest >= h.next THEN setval('outboxd.notification_log_id_seq', h.highest + 1) END
      FROM (SELECT (SELECT max(l.id) FROM outboxd.notification_log l) AS highest, nextval('outboxd.notification_log_id_seq') AS next) h
), in_the_way AS MATERIALIZED (
    SELECT l.id, o.created_at FROM outboxd.notification_log l CROSS JOIN ahead a CROSS JOIN LATERAL (
           SELECT o.created_at FROM outboxd.outbox o WHERE o.id = l.id AND o.topic IS NOT NULL OFFSET 0) o
     WHERE l.id = ANY ($1::bigint[]) ORDER BY l.id FOR UPDATE OF l
), moved AS (
    UPDATE outboxd.notification_log l SET id = DEFAULT FROM in_the_way w WHERE l.id = w.id
    RETURNING w.id AS old_id, w.created_at, l.id
), followed AS (
    UPDATE outboxd.attempt a SET notification_id = m.id FROM moved m
     WHERE a.notification_id = m.old_id AND a.ended_at < m.created_at
)
SELECT m.old_id, m.id FROM moved m
