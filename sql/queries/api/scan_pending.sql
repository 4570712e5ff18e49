-- A bounded scan up what is PENDING, topic by topic, the earliest first: of the next $4 rows above ($1, $2, $3) those
-- that match, and the last one scanned. `scanned` is how many rows there were; fewer than $4: that was all.
-- $1 above this topic · $2 and this due_at, NULL: from the topic's first · $3 and this id · $4 rows to scan ·
-- $5 topic · $6 since · $7 until (of created_at) · $8 what the payload contains, JSON as text · $9 patterns of LIKE for its topic;
-- each NULL: any
-- Locks: none. Index: notification_log_due.
SELECT s.id, s.topic, s.at, s.matches, s.scanned
  FROM (SELECT l.id, l.topic, l.due_at AS at,
               ($5::text IS NULL OR l.topic = $5) AND ($9::text[] IS NULL OR l.topic LIKE ANY ($9)) AND ($6::timestamptz IS NULL OR l.created_at >= $6)
                   AND ($7::timestamptz IS NULL OR l.created_at <= $7) AND ($8::text IS NULL OR l.payload @> $8::jsonb) AS matches,
               count(*) OVER () AS scanned, row_number() OVER (ORDER BY l.topic, l.due_at, l.id) AS nth
          FROM (SELECT w.* FROM outboxd.notification_log w
                 WHERE w.due_at IS NOT NULL
                   AND (w.topic, w.due_at, w.id) > ($1::text, coalesce($2::timestamptz, '-infinity'), $3::bigint)
                 ORDER BY w.topic, w.due_at, w.id LIMIT $4::int) l) s
 WHERE s.matches OR s.nth = s.scanned ORDER BY s.topic, s.at, s.id
