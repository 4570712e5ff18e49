-- Takes the next stretch of each lane given, up to what is settled: its ready rows are this instance's to push. Only the stretch is
-- written, not its rows. Rows that wait behind their key (3) are reported, to be admitted. Confirms on the way, like
-- relay_reserve_fresh.
-- Interleavings: of two relays with the same stretch one inserts it, the other gets its rows without a publication and pushes
-- nothing. settled_to is read as of this statement's snapshot, so all that lies below it is visible. relay_reserve_fresh takes
-- nothing below (see there). A row canceled or claimed meanwhile is a message that the claim drops. A crash before
-- the push leaves an unconfirmed stretch, which the sweep recalls.
-- $1 lanes · $2 after which seq, per lane · $3 rows at most, per lane · $4 instance · $5 publications to confirm
-- Locks: none of outbox. Index: publication_stretch, outbox_lane.
WITH confirmed AS (
    DELETE FROM outboxd.publication WHERE id = ANY ($5::bigint[]) AND lane IS NULL
), pushed AS (
    UPDATE outboxd.publication SET pushed_at = clock_timestamp() WHERE id = ANY ($5::bigint[]) AND lane IS NOT NULL
), settled AS MATERIALIZED (
    SELECT n.lane, n.settled_to, greatest(l.after, s.seq_to) AS after, l.take
      FROM unnest($1::int[], $2::bigint[], $3::int[]) l(lane, after, take)
     CROSS JOIN LATERAL (SELECT n.lane, n.settled_to FROM outboxd.lane n WHERE n.lane = l.lane OFFSET 0) n
      LEFT JOIN LATERAL (
           SELECT p.seq_to FROM outboxd.publication p WHERE p.lane = l.lane ORDER BY p.lane DESC, p.seq_from DESC LIMIT 1) s ON true
), picked AS MATERIALIZED (
    SELECT w.id, w.seq, w.lane, w.state, w.epoch, w.ordering_key, w.topic
      FROM settled l
     CROSS JOIN LATERAL (
           SELECT o.id, o.seq, o.lane, o.state, o.epoch, o.ordering_key, CASE WHEN o.lane = 0 THEN o.topic END AS topic
             FROM outboxd.outbox o
            WHERE o.lane = l.lane AND o.seq > l.after AND o.seq <= l.settled_to AND o.state IN (0, 3) AND o.retry_at IS NULL
            ORDER BY o.lane, o.seq LIMIT l.take) w
), published AS (
    INSERT INTO outboxd.publication (instance, lane, seq_from, seq_to)
    SELECT $4::int, w.lane, min(w.seq), max(w.seq) FROM picked w WHERE w.state = 0 GROUP BY w.lane ORDER BY w.lane
    ON CONFLICT (lane, seq_from) WHERE lane IS NOT NULL DO NOTHING
    RETURNING id, lane
)
SELECT w.id, w.lane, w.seq, CASE WHEN w.state = 0 THEN w.epoch END AS epoch, b.id AS batch, w.topic,
       CASE WHEN w.state = 3 THEN w.ordering_key END AS ordering_key
  FROM picked w LEFT JOIN published b ON b.lane = w.lane AND w.state = 0
