-- One step of the walk up outboxd.event: the next $2 rows by id, of which those older than $3 are deleted; the first
-- younger one ends the walk for now. What is still to be appended to its stream, and what came after it, stays.
-- Publications go when they are as old; what they name is older still.
-- Interleavings: a former owner finds no lease; its progress row keeps two steps apart; nothing updates these rows. An
-- event that is reserved meanwhile was waiting when this began. One that Redis lost and whose time is over is not
-- appended again.
-- $1 owner · $2 rows to look at · $3 kept for, in ms · $4 a new walk after, in ms
-- Locks: the rows deleted; its progress row; the lease FOR KEY SHARE. Index: event_pkey, event_publication_pkey.
WITH lease AS MATERIALIZED (
    SELECT d.name FROM outboxd.leader_lease d
     WHERE d.name = 'retention' AND d.owner = $1::int AND d.until > clock_timestamp() FOR KEY SHARE
), walk AS MATERIALIZED (
    SELECT w.name, w.is_caught_up AND w.restarted_at < clock_timestamp() - $4::bigint * interval '1 ms' AS starts, w.position
      FROM outboxd.retention_progress w WHERE w.name = 'event' AND EXISTS (SELECT FROM lease) FOR UPDATE
), unappended AS MATERIALIZED (
    SELECT least((SELECT min(p.event_id) FROM outboxd.event_outbox p),
                 (SELECT min(i.id) FROM outboxd.event_publication p CROSS JOIN unnest(p.event_ids) i(id)
                   WHERE p.number > (SELECT g.appended FROM outboxd.event_progress g)), 9223372036854775807) AS id
), seen AS MATERIALIZED (
    SELECT x.id, x.created_at < clock_timestamp() - $3::bigint * interval '1 ms'
           AND x.id < (SELECT u.id FROM unappended u) AS is_over
      FROM walk w CROSS JOIN LATERAL (
           SELECT x.id, x.created_at FROM outboxd.event x
            WHERE x.id > CASE WHEN w.starts THEN 0 ELSE w.position END ORDER BY x.id LIMIT $2::int) x
), gone AS (
    DELETE FROM outboxd.event x USING seen s WHERE x.id = s.id AND s.is_over RETURNING x.id
), forgotten AS (
    DELETE FROM outboxd.event_publication p
     WHERE p.number = ANY (ARRAY(SELECT f.number FROM (
               SELECT f.number, f.created_at FROM outboxd.event_publication f
                WHERE EXISTS (SELECT FROM walk) ORDER BY f.number LIMIT $2::int) f
                WHERE f.created_at < clock_timestamp() - $3::bigint * interval '1 ms'
                  AND f.number <= (SELECT g.appended FROM outboxd.event_progress g)))
), moved AS (
    UPDATE outboxd.retention_progress w
       SET position = coalesce((SELECT max(s.id) FROM seen s WHERE s.is_over), CASE WHEN k.starts THEN 0 ELSE w.position END),
           is_caught_up = (SELECT count(*) FROM seen s WHERE s.is_over) < $2::int,
           restarted_at = CASE WHEN k.starts THEN clock_timestamp() ELSE w.restarted_at END
      FROM walk k WHERE w.name = k.name
    RETURNING w.is_caught_up
)
SELECT (SELECT m.is_caught_up FROM moved m) AS is_caught_up, (SELECT count(*) FROM gone) AS deleted
