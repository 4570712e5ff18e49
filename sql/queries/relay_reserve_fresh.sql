-- Takes ready rows, lane by lane above each lane's bound, for this instance to push: state 0 → 1 under a new
-- publication. Rows that wait behind their key (3) are reported, to be admitted. Also ends the publications that
-- are known to have arrived, so that confirming costs no round trip of its own while there is work. The topic is told of
-- letters in lane 0: it may be one that has no lane yet.
-- Interleavings: other relays skip the rows we lock; a claim needs the epoch and takes state 0 or 1 alike;
-- cancel() either got the row first or finds it published. A crash before the push leaves an unconfirmed
-- publication; losing this commit in a server crash leaves state 0 and at worst a copy, dropped at the claim.
-- What is settled is left to relay_reserve_stretch: as seen here, and, for what was settled since, as seen under the lock of
-- the lane's row, which relay_settle_lanes waits for.
-- The rows are changed by their places, all in one scan: a join would look up the size of the table for each.
-- $1 lanes · $2 after which seq, per lane · $3 rows at most, per lane · $4 instance · $5 publications to confirm
-- $6 whether there are stretches (not with an in-process queue, which takes everything here)
-- Locks: the rows taken; then FOR SHARE their lanes, where these have had a backlog. Index: outbox_lane, then by place; lane_pkey.
WITH confirmed AS (
    DELETE FROM outboxd.publication WHERE id = ANY ($5::bigint[]) AND lane IS NULL
), pushed AS (
    UPDATE outboxd.publication SET pushed_at = clock_timestamp() WHERE id = ANY ($5::bigint[]) AND lane IS NOT NULL
), found AS MATERIALIZED (
    SELECT w.place, w.id, w.seq, w.lane, w.state, w.ordering_key
      FROM unnest($1::int[], $2::bigint[], $3::int[]) l(lane, after, take)
      LEFT JOIN LATERAL (SELECT n.settled_to FROM outboxd.lane n WHERE $6::bool AND n.lane = l.lane OFFSET 0) n ON true
     CROSS JOIN LATERAL (
           SELECT o.ctid AS place, o.id, o.seq, o.lane, o.state, o.ordering_key FROM outboxd.outbox o
            WHERE o.lane = l.lane AND o.seq > greatest(l.after, n.settled_to) AND o.state IN (0, 3) AND o.retry_at IS NULL
            ORDER BY o.lane, o.seq LIMIT l.take FOR UPDATE SKIP LOCKED) w
), settled AS MATERIALIZED (
    SELECT n.lane, n.settled_to FROM outboxd.lane n
     WHERE $6::bool AND n.lane = ANY (ARRAY(SELECT DISTINCT w.lane FROM found w)) ORDER BY n.lane FOR SHARE
), picked AS MATERIALIZED (
    SELECT w.place, w.id, w.seq, w.lane, w.state, w.ordering_key
      FROM found w LEFT JOIN settled n ON n.lane = w.lane WHERE w.seq > coalesce(n.settled_to, 0)
), published AS (
    INSERT INTO outboxd.publication (instance)
    SELECT $4::int WHERE EXISTS (SELECT FROM picked WHERE state = 0)
    RETURNING id
), reserved AS (
    UPDATE outboxd.outbox o SET state = 1, batch = (SELECT b.id FROM published b), instance = $4::int, next_at = clock_timestamp()
     WHERE o.ctid = ANY (ARRAY(SELECT w.place FROM picked w WHERE w.state = 0))
    RETURNING o.id, o.lane, o.seq, o.epoch, o.batch, CASE WHEN o.lane = 0 THEN o.topic END AS topic
)
SELECT r.id, r.lane, r.seq, r.epoch, r.batch, r.topic, NULL AS ordering_key FROM reserved r
UNION ALL
SELECT w.id, w.lane, w.seq, NULL, NULL, NULL, w.ordering_key FROM picked w WHERE w.state = 3
