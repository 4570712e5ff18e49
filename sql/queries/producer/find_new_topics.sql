-- Topics with PENDING rows beside those known, at most one between any two of them: the dead index entries of the known
-- ones are jumped over.
-- Times as in producer/find_topics.
-- $1 topics known
-- Locks: none. Index: notification_log_due.
SELECT f.topic, d.at AS first_at, f.id AS first_id, greatest(extract(epoch FROM d.at - clock_timestamp()) * 1000, 0)::bigint AS due_in_ms
  FROM (
SELECT n.topic, n.due_at, n.id
  FROM (SELECT k.topic, lead(k.topic) OVER (ORDER BY k.topic) AS next
          FROM (SELECT '' AS topic UNION ALL SELECT u FROM unnest($1::text[]) u) k) k
 CROSS JOIN LATERAL (
       SELECT l.topic, l.due_at, l.id FROM outboxd.notification_log l
        WHERE l.due_at IS NOT NULL AND l.topic > k.topic AND l.topic < k.next ORDER BY l.topic, l.due_at, l.id LIMIT 1) n
UNION ALL
(SELECT l.topic, l.due_at, l.id
   FROM outboxd.notification_log l
  WHERE l.due_at IS NOT NULL AND l.topic > (SELECT coalesce(max(u), '') FROM unnest($1::text[]) u)
  ORDER BY l.topic, l.due_at, l.id LIMIT 1)
) f CROSS JOIN LATERAL (SELECT least(greatest(f.due_at, '0001-01-01+00'), '9999-12-31+00') AS at) d
