-- Says up to which number lanes are settled, from now on published by stretches. Answers with what holds now.
-- A lane that is new here gets its row first and its number the next time, unless this instance is alone: relays that are reserving
-- in it at this moment hold no row of it that this could wait for.
-- Interleavings: relay_reserve_fresh shares the row's lock until its commit. Either it comes first, and whoever sees
-- the new number sees what it reserved, or it waits for this and leaves what has been settled.
-- $1 lanes · $2 up to which seq · $3 alone
-- Locks: the rows of the lanes, in their order. Index: lane_pkey.
WITH known AS MATERIALIZED (
    SELECT n.lane FROM outboxd.lane n WHERE n.lane = ANY ($1::int[]) ORDER BY n.lane FOR UPDATE
), raised AS (
    UPDATE outboxd.lane n SET settled_to = greatest(n.settled_to, $2::bigint)
     WHERE n.lane = ANY (ARRAY(SELECT k.lane FROM known k))
    RETURNING n.lane, n.settled_to
), made AS (
    INSERT INTO outboxd.lane AS n (lane, settled_to)
    SELECT u, CASE WHEN $3::bool THEN $2::bigint ELSE 0 END FROM unnest($1::int[]) u WHERE u NOT IN (SELECT k.lane FROM known k)
    ON CONFLICT (lane) DO NOTHING
    RETURNING n.lane, n.settled_to
)
SELECT r.lane, r.settled_to FROM raised r UNION ALL SELECT m.lane, m.settled_to FROM made m
