-- Keeps a lease that is ours, or acquires one that nobody has. No row: somebody else has it.
-- Interleavings: of two who ask at once one locks the row and the other passes over it and asks again later. A
-- statement that works under the lease holds the row FOR KEY SHARE. Who asks for the lease (FOR UPDATE) passes over
-- such a row, so the lease changes its owner before or after the statement, never meanwhile. The owner's own renewal
-- (no key update) is not stopped by it. An owner that signed off or has no heartbeat is not waited for; one whose lease
-- ran out unnoticed keeps it. Nobody gets `events` in a copy until it is adopted: its streams may be another's.
-- $1 lease · $2 instance · $3 lease in ms
-- Locks: the lease's row; who asks never waits. Index: leader_lease_pkey, instance_pkey.
WITH kept AS (
    UPDATE outboxd.leader_lease d SET until = clock_timestamp() + $3::bigint * interval '1 ms'
     WHERE d.name = $1::text AND d.owner = $2::int
    RETURNING false AS is_new
), acquired AS (
    UPDATE outboxd.leader_lease d
       SET owner = $2::int, until = clock_timestamp() + $3::bigint * interval '1 ms', since = clock_timestamp()
      FROM (SELECT f.name FROM outboxd.leader_lease f
             WHERE f.name = $1::text AND f.owner IS DISTINCT FROM $2::int
               AND (f.owner IS NULL OR f.until <= clock_timestamp()
                    OR NOT EXISTS (SELECT FROM outboxd.instance i WHERE i.id = f.owner AND i.stopped_at IS NULL
                                      AND i.heartbeat_at > clock_timestamp() - i.ttl))
               AND (f.name <> 'events' OR (SELECT o.phase FROM outboxd.origin o) = 'own')
               FOR UPDATE SKIP LOCKED) f
     WHERE d.name = f.name
    RETURNING true AS is_new
)
SELECT k.is_new FROM kept k UNION ALL SELECT t.is_new FROM acquired t
