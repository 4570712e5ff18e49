-- The lanes, what an operator has said of them, and up to which number they are settled. Lane 0 has no topic.
-- Locks: none. Index: none, the tables are small and bounded.
SELECT coalesce(t.lane, n.lane) AS lane, t.name, t.paused_at IS NOT NULL AS paused, coalesce(t.rewinds, 0) AS rewinds,
       coalesce(n.settled_to, 0) AS settled_to
  FROM outboxd.topic t FULL JOIN outboxd.lane n ON n.lane = t.lane ORDER BY 1
