-- Notifications with this dedup_key: of one topic, or of each of the first 1,000 topics that have such keys.
-- $1 dedup_key · $2 topic, NULL: any · $3 rows at most · $4 patterns of LIKE for its topic, NULL: any
-- Locks: none. Index: notification_log_dedup: one probe for each topic.
WITH RECURSIVE topic(name, n) AS (
    SELECT coalesce($2::text, (SELECT l.topic FROM outboxd.notification_log l WHERE l.dedup_key IS NOT NULL ORDER BY l.topic LIMIT 1)), 1
    UNION ALL
    SELECT (SELECT l.topic FROM outboxd.notification_log l WHERE l.dedup_key IS NOT NULL AND l.topic > t.name ORDER BY l.topic LIMIT 1),
           t.n + 1
      FROM topic t WHERE t.name IS NOT NULL AND $2::text IS NULL AND t.n < 1000
)
SELECT f.id FROM topic t
  CROSS JOIN LATERAL (SELECT l.id FROM outboxd.notification_log l WHERE l.topic = t.name AND l.dedup_key = $1::text OFFSET 0) f
 WHERE $4::text[] IS NULL OR t.name LIKE ANY ($4)
 ORDER BY f.id DESC LIMIT $3::int
