-- Gives a lease up, so that nobody has to wait for the lease to run out. Only the owner's.
-- Interleavings: a lease that ran out and is another's by now is left alone.
-- $1 lease · $2 instance
-- Locks: the lease's row. Index: leader_lease_pkey.
UPDATE outboxd.leader_lease SET owner = NULL, until = NULL, since = NULL WHERE name = $1::text AND owner = $2::int
