-- A bounded scan down the dead letters, last failed first: of the next $3 rows below ($1, $2) those that match, and the
-- last one scanned. `scanned` is how many rows there were; fewer than $3: that was all.
-- $1 below this failed_at, NULL: from the top · $2 and this id · $3 rows to scan · $4 topic · $5 since ·
-- $6 until (of created_at) · $7 what the payload contains, JSON as text · $8 patterns of LIKE for its topic;
-- each NULL: any
-- Locks: none. Index: notification_log_failed.
SELECT s.id, s.topic, s.at, s.matches, s.scanned
  FROM (SELECT l.id, l.topic, l.failed_at AS at,
               ($4::text IS NULL OR l.topic = $4) AND ($8::text[] IS NULL OR l.topic LIKE ANY ($8)) AND ($5::timestamptz IS NULL OR l.created_at >= $5)
                   AND ($6::timestamptz IS NULL OR l.created_at <= $6) AND ($7::text IS NULL OR l.payload @> $7::jsonb) AS matches,
               count(*) OVER () AS scanned, row_number() OVER (ORDER BY l.failed_at DESC, l.id DESC) AS nth
          FROM (SELECT w.* FROM outboxd.notification_log w
                 WHERE w.failed_at IS NOT NULL AND w.failed_at <= coalesce($1::timestamptz, 'infinity')
                   AND (w.failed_at, w.id) < (coalesce($1::timestamptz, 'infinity'), $2::bigint)
                 ORDER BY w.failed_at DESC, w.id DESC LIMIT $3::int) l) s
 WHERE s.matches OR s.nth = s.scanned ORDER BY s.at DESC, s.id DESC
