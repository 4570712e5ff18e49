-- Counts the active set, if it is time and nobody else is at it.
-- Parameters: none. Locks: the one row of snapshot. Index: none: one pass over the active set and two partial indexes.
SELECT outboxd._take_snapshot()
