-- Takes rows whose timer has run out (retries, admitted heads, lost publications): state 0 → 1 under a new
-- publication. Rows of a paused topic only lose their timer: resume() makes relays look at the lane again. The
-- topic's row is locked for that, so that a resume() either sees them or comes first. A timer that no longer is its row's, because
-- the row was claimed, canceled or put off since, is void and goes; it is reported without an epoch, like a parked row.
-- Interleavings: a timer is seen together with the row's retry_at, or a later version of the row: so one that does not match
-- is void for good. A row that somebody has locked keeps its timer until the next look. Other relays skip the timers we lock.
-- $1 how far to look back in ms (dead index entries) · $2 rows at most · $3 instance
-- Locks: the timers, the rows taken; FOR SHARE on paused topics among them. Index: timer_pkey, outbox_pkey, then by place.
WITH due AS MATERIALIZED (
    SELECT t.ctid AS timer, t.at, t.id FROM outboxd.timer t
     WHERE t.at <= now() AND t.at > now() - $1::bigint * interval '1 ms'
     ORDER BY t.at, t.id LIMIT $2::int FOR UPDATE SKIP LOCKED
), picked AS MATERIALIZED (
    SELECT d.timer, d.at, o.place, o.id, o.lane, o.topic FROM due d CROSS JOIN LATERAL (
           SELECT o.ctid AS place, o.id, o.lane, o.topic FROM outboxd.outbox o
            WHERE o.id = d.id AND o.retry_at = d.at FOR UPDATE SKIP LOCKED) o
), void AS MATERIALIZED (
    SELECT d.timer, d.at, d.id FROM due d
     WHERE (SELECT count(*) FROM picked) < (SELECT count(*) FROM due)
       AND NOT EXISTS (SELECT FROM outboxd.outbox o WHERE o.id = d.id AND o.retry_at = d.at OFFSET 0)
), ended AS (
    DELETE FROM outboxd.timer t
     WHERE t.ctid = ANY (ARRAY(SELECT p.timer FROM picked p UNION ALL SELECT v.timer FROM void v))
), named AS (
    SELECT p.place, p.id, p.at, coalesce(nullif(p.lane, 0), t.lane, 0) AS lane
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
    RETURNING o.id, n.at
), reserved AS (
    UPDATE outboxd.outbox o
       SET state = 1, retry_at = NULL, batch = b.id, instance = $3::int, next_at = clock_timestamp()
      FROM named n, published b WHERE o.ctid = n.place AND n.lane NOT IN (SELECT p.lane FROM paused p)
    RETURNING o.id, o.epoch, o.batch, n.at
)
SELECT r.id, r.epoch, r.batch, r.at FROM reserved r
UNION ALL
SELECT p.id, NULL, NULL, p.at FROM parked p
UNION ALL
SELECT v.id, NULL, NULL, v.at FROM void v
 ORDER BY at
