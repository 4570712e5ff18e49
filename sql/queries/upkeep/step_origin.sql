-- One batch of what is to be done about a copy; see _step_origin().
-- Interleavings: those of _step_origin().
-- Parameters: none. Locks: those of _step_origin(). Index: those of _step_origin().
SELECT outboxd._step_origin()
