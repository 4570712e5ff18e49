-- One step of retention in a table that is gone up by id: see _delete_older_by_id().
-- $1 table · $2 its column with the time · $3 owner · $4 rows to read · $5 kept for, in ms · $6 a new scan after, in ms
-- Locks, index: those of the function.
SELECT d.is_caught_up, coalesce(d.deleted, 0)
  FROM outboxd._delete_older_by_id($1::text, $2::text, $3::int, $4::int, $5::bigint * interval '1 ms', $6::bigint * interval '1 ms') d
