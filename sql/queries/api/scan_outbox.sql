-- A bounded scan down the live work, newest first: of the next $2 rows below $1 those that match, and the last one
-- scanned. `scanned` is how many rows there were; fewer than $2: that was all.
-- $1 below this id · $2 rows to scan · $3 topic · $4 status, QUEUED or PROCESSING · $5 since ·
-- $6 until (of created_at) · $7 what the payload contains, JSON as text · $8 patterns of LIKE for its topic;
-- each NULL: any
-- Locks: none. Index: outbox_pkey, notification_log_pkey.
SELECT s.id, s.topic, s.at, s.matches, s.scanned
  FROM (SELECT o.id, o.topic, l.created_at AS at,
               ($3::text IS NULL OR o.topic = $3) AND ($8::text[] IS NULL OR o.topic LIKE ANY ($8)) AND ($4::text IS NULL OR (o.state = 'processing') = ($4 = 'PROCESSING'))
                   AND ($5::timestamptz IS NULL OR l.created_at >= $5)
                   AND ($6::timestamptz IS NULL OR l.created_at <= $6) AND ($7::text IS NULL OR l.payload @> $7::jsonb) AS matches,
               count(*) OVER () AS scanned, row_number() OVER (ORDER BY o.id DESC) AS nth
          FROM (SELECT w.id, w.topic, w.state FROM outboxd.outbox w WHERE w.id < $1::bigint ORDER BY w.id DESC LIMIT $2::int) o
          LEFT JOIN LATERAL (SELECT r.created_at, r.payload FROM outboxd.notification_log r WHERE r.id = o.id OFFSET 0) l
            ON true) s
 WHERE s.matches OR s.nth = s.scanned ORDER BY s.id DESC
