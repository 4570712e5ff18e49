-- Counts the active set, if it is time and nobody else is at it.
-- Parameters: none. Locks: the one row of census. Index: none: one pass over the active set and two partial indexes.
SELECT outboxd._take_census()
