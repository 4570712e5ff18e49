-- A net under the stretches: ready rows below a lane's latest stretch that no stretch covers. There should be none; they get a timer.
-- Not in paused lanes, where rows are parked like that.
-- $1 the stretch is older than this, in ms · $2 rows at most, per lane
-- Locks: the rows. Index: publication_stretch, outbox_lane, then by place.
WITH latest AS MATERIALIZED (
    SELECT p.lane, max(p.seq_from) AS seq_from FROM outboxd.publication p
     WHERE p.lane IS NOT NULL AND p.reserved_at < clock_timestamp() - $1::bigint * interval '1 ms'
       AND p.lane NOT IN (SELECT t.lane FROM outboxd.topic t WHERE t.paused_at IS NOT NULL)
     GROUP BY p.lane
), stray AS MATERIALIZED (
    SELECT w.place FROM latest s CROSS JOIN LATERAL (
           SELECT o.ctid AS place FROM outboxd.outbox o
            WHERE o.lane = s.lane AND o.seq < s.seq_from AND o.state = 0 AND o.retry_at IS NULL
              AND o.seq > coalesce((SELECT p.seq_to FROM outboxd.publication p WHERE p.lane = o.lane AND p.seq_from <= o.seq
                                     ORDER BY p.lane DESC, p.seq_from DESC LIMIT 1), 0)
            LIMIT $2::int) w
), due AS (
    UPDATE outboxd.outbox o SET retry_at = clock_timestamp()
     WHERE o.ctid = ANY (ARRAY(SELECT w.place FROM stray w)) AND o.state = 0 AND o.retry_at IS NULL
    RETURNING o.id, o.retry_at
)
INSERT INTO outboxd.timer (at, id) SELECT d.retry_at, d.id FROM due d
RETURNING id
