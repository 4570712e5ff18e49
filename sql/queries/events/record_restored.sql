-- So many lost events are back, or all of them. Answers with how many that were.
-- Interleavings: whoever lost the lease writes nothing. A loss noticed meanwhile began the count anew.
-- $1 lease · $2 instance · $3 events appended again · $4 whether nothing is missing any more
-- Locks: the row of progress; the lease FOR KEY SHARE. Index: leader_lease_pkey, event_progress_pkey.
WITH lease AS MATERIALIZED (SELECT WHERE outboxd._owns_lease($1::text, $2::int))
UPDATE outboxd.event_progress p
   SET restored = p.restored + $3::bigint, restored_at = CASE WHEN $4::bool THEN clock_timestamp() END
 WHERE p.only_row AND p.lost_at IS NOT NULL AND p.restored_at IS NULL AND EXISTS (SELECT FROM lease)
RETURNING p.restored
