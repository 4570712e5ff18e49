-- Redis has come to this number. Said when nothing more waits, otherwise with the next reservation: it only serves to
-- tell a loss from what was never appended.
-- Interleavings: whoever lost the lease writes nothing; the lease cannot change hands while this holds it.
-- $1 lease · $2 instance · $3 the number Redis has come to
-- Locks: the row of progress; the lease FOR KEY SHARE. Index: leader_lease_pkey, event_progress_pkey.
WITH lease AS MATERIALIZED (SELECT WHERE outboxd._owns_lease($1::text, $2::int))
UPDATE outboxd.event_progress p SET appended = $3::bigint
 WHERE p.only_row AND p.appended <> $3::bigint AND EXISTS (SELECT FROM lease) RETURNING p.appended
