-- Takes a duty, or keeps it. No row: somebody else has it.
-- Interleavings: of two at once one locks the row and the other passes over it and asks again later; a statement
-- that works under the lease holds the row FOR SHARE, so the duty changes hands before or after it, never meanwhile.
-- An owner that signed off or has no heartbeat is not waited for; one whose lease ran out unnoticed keeps it.
-- $1 duty · $2 instance · $3 lease in ms
-- Locks: the duty's row, never waiting. Index: duty_pkey, instance_pkey.
UPDATE outboxd.duty d
   SET owner = $2::int, until = clock_timestamp() + $3::bigint * interval '1 ms',
       since = CASE WHEN d.owner = $2::int THEN d.since ELSE clock_timestamp() END
  FROM (SELECT f.name, f.owner FROM outboxd.duty f
         WHERE f.name = $1::text
           AND (f.owner IS NULL OR f.owner = $2::int OR f.until <= clock_timestamp()
                OR NOT EXISTS (SELECT FROM outboxd.instance i WHERE i.id = f.owner AND i.stopped_at IS NULL
                                  AND i.heartbeat_at > clock_timestamp() - i.ttl))
           FOR UPDATE SKIP LOCKED) f
 WHERE d.name = f.name
RETURNING f.owner IS DISTINCT FROM $2::int AS is_new
