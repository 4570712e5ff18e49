-- Takes rows whose timer has run out (retries, admitted heads, lost publications): state 0 → 1 under a new
-- publication. Rows of a paused topic only lose their timer: resume() makes relays look at the lane again. The
-- topic's row is locked for that, so that a resume() either sees them or comes first.
-- $1 how far to look back in ms (dead index entries) · $2 rows at most · $3 instance
-- Locks: the rows taken; FOR SHARE on paused topics among them. Index: outbox_retry, then by place.
WITH picked AS MATERIALIZED (
    SELECT o.ctid AS place, o.id, o.lane, o.retry_at, o.topic FROM outboxd.outbox o
     WHERE o.retry_at <= now() AND o.retry_at > now() - $1::bigint * interval '1 ms'
     ORDER BY o.retry_at LIMIT $2::int FOR UPDATE SKIP LOCKED
), named AS (
    SELECT p.place, p.id, p.retry_at, coalesce(nullif(p.lane, 0), t.lane, 0) AS lane
      FROM picked p
      LEFT JOIN LATERAL (
           SELECT l.topic FROM outboxd.notification_log l WHERE p.lane = 0 AND p.topic IS NULL AND l.id = p.id OFFSET 0) l ON true
      LEFT JOIN outboxd.topic t ON p.lane = 0 AND t.name = coalesce(p.topic, l.topic)
), paused AS MATERIALIZED (
    SELECT t.lane FROM outboxd.topic t
     WHERE t.paused_at IS NOT NULL AND t.lane IN (SELECT n.lane FROM named n) FOR SHARE
), published AS (
    INSERT INTO outboxd.publication (instance)
    SELECT $3::int
     WHERE EXISTS (SELECT FROM named n WHERE n.lane NOT IN (SELECT p.lane FROM paused p))
    RETURNING id
), parked AS (
    UPDATE outboxd.outbox o SET retry_at = NULL, lane = n.lane, batch = NULL, next_at = clock_timestamp()
      FROM named n WHERE o.ctid = n.place AND n.lane IN (SELECT p.lane FROM paused p)
    RETURNING o.id
), reserved AS (
    UPDATE outboxd.outbox o
       SET state = 1, retry_at = NULL, batch = b.id, instance = $3::int, next_at = clock_timestamp()
      FROM named n, published b WHERE o.ctid = n.place AND n.lane NOT IN (SELECT p.lane FROM paused p)
    RETURNING o.id, o.epoch, o.batch
)
SELECT n.id, r.epoch, r.batch
  FROM named n LEFT JOIN reserved r ON r.id = n.id LEFT JOIN parked p ON p.id = n.id
 ORDER BY n.retry_at
