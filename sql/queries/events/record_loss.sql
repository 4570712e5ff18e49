-- Redis has come less far than it was known to be: what lies between is lost and is being appended again. No row: the
-- lease is somebody else's.
-- Interleavings: whoever lost the lease writes nothing; the lease cannot change hands while this holds it.
-- $1 lease · $2 instance
-- Locks: the row of progress; the lease FOR KEY SHARE. Index: leader_lease_pkey, event_progress_pkey.
WITH lease AS MATERIALIZED (SELECT WHERE outboxd._owns_lease($1::text, $2::int))
UPDATE outboxd.event_progress p SET lost_at = clock_timestamp(), restored_at = NULL, restored = 0
 WHERE p.only_row AND EXISTS (SELECT FROM lease) RETURNING p.lost_at
