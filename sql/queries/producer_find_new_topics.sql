-- Topics with PENDING rows beside those known, at most one between any two of them: the dead index entries of the known
-- ones are jumped over.
-- $1 topics known
-- Locks: none. Index: notification_log_due.
SELECT n.topic, n.due_at AS first_at, n.id AS first_id,
       greatest(extract(epoch FROM n.due_at - clock_timestamp()) * 1000, 0)::bigint AS due_in_ms
  FROM (SELECT k.topic, lead(k.topic) OVER (ORDER BY k.topic) AS next
          FROM (SELECT '' AS topic UNION ALL SELECT u FROM unnest($1::text[]) u) k) k
 CROSS JOIN LATERAL (
       SELECT l.topic, l.due_at, l.id FROM outboxd.notification_log l
        WHERE l.due_at IS NOT NULL AND l.topic > k.topic AND l.topic < k.next ORDER BY l.topic, l.due_at, l.id LIMIT 1) n
UNION ALL
(SELECT l.topic, l.due_at, l.id, greatest(extract(epoch FROM l.due_at - clock_timestamp()) * 1000, 0)::bigint
   FROM outboxd.notification_log l
  WHERE l.due_at IS NOT NULL AND l.topic > (SELECT coalesce(max(u), '') FROM unnest($1::text[]) u)
  ORDER BY l.topic, l.due_at, l.id LIMIT 1)
