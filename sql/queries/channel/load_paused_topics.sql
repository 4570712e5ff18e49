-- The topics that an operator paused.
-- Parameters: none. Locks: none. Index: none, the table is small.
SELECT t.name FROM outboxd.topic t WHERE t.paused_at IS NOT NULL
