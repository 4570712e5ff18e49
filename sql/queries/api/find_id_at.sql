-- The id above which everything was created after $1, or about: ids and creation times grow together, except that
-- transactions at the same time may draw theirs the other way round. A binary search, some 30 probes of the primary
-- key.
-- $1 time
-- Locks: none. Index: notification_log_pkey.
WITH RECURSIVE search(lo, hi) AS (
    SELECT coalesce((SELECT l.id FROM outboxd.notification_log l ORDER BY l.id LIMIT 1), 0),
           coalesce((SELECT l.id FROM outboxd.notification_log l ORDER BY l.id DESC LIMIT 1), 0)
    UNION ALL
    SELECT CASE WHEN p.created_at <= $1::timestamptz THEN p.id + 1 ELSE s.lo END,
           CASE WHEN p.created_at <= $1::timestamptz THEN s.hi ELSE s.lo + (s.hi - s.lo) / 2 END
      FROM search s
      LEFT JOIN LATERAL (SELECT l.id, l.created_at FROM outboxd.notification_log l
                          WHERE l.id >= s.lo + (s.hi - s.lo) / 2 AND l.id < s.hi ORDER BY l.id LIMIT 1) p ON true
     WHERE s.lo < s.hi
)
SELECT max(s.lo) + 1 AS id FROM search s
