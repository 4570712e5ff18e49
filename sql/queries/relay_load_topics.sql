-- The lanes and what an operator has said of them.
-- Locks: none. Index: none, the table is small and bounded.
SELECT t.lane, t.name, t.paused_at IS NOT NULL AS paused, t.rewinds FROM outboxd.topic t ORDER BY t.lane
