-- Rows that wait for a channel, or an origin of it, are due at once: it was closed, or is to be probed, before the time
-- they were given.
-- $1 channel · $2 origin · $3 rows at most
-- Locks, index: those of _hasten().
SELECT outboxd._hasten($1::text, $2::text, $3::int) AS hastened
