-- What was sent to one recipient, newest first: of the next $2 rows below $1 those that match, and the last one
-- scanned. `scanned` is how many rows there were; fewer than $2: that was all.
-- $1 below this id · $2 rows to scan · $3 topic · $4 status, any · $5 since · $6 until (of created_at) ·
-- $7 what the payload contains, JSON as text · $9 patterns of LIKE for its topic; each
-- NULL: any · $8 recipient, not NULL
-- Locks: none. Index: notification_log_recipient, from its end; outbox_pkey.
SELECT s.id, s.topic, s.at, s.matches, s.scanned
  FROM (SELECT l.id, l.topic, l.created_at AS at,
               ($3::text IS NULL OR l.topic = $3) AND ($9::text[] IS NULL OR l.topic LIKE ANY ($9))
                   AND ($4::text IS NULL OR $4 = CASE WHEN o.state = 'processing' THEN 'PROCESSING' ELSE l.status::text END)
                   AND ($5::timestamptz IS NULL OR l.created_at >= $5)
                   AND ($6::timestamptz IS NULL OR l.created_at <= $6) AND ($7::text IS NULL OR l.payload @> $7::jsonb) AS matches,
               count(*) OVER () AS scanned, row_number() OVER (ORDER BY l.id DESC) AS nth
          FROM (SELECT w.* FROM outboxd.notification_log w
                 WHERE w.recipient = $8::text AND w.id < $1::bigint ORDER BY w.id DESC LIMIT $2::int) l
          LEFT JOIN LATERAL (SELECT q.state FROM outboxd.outbox q WHERE q.id = l.id AND l.status = 'QUEUED' OFFSET 0) o ON true) s
 WHERE s.matches OR s.nth = s.scanned ORDER BY s.id DESC
