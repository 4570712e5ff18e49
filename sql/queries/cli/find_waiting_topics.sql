-- Topics that something waits in, or that a schedule writes to: each needs a route.
-- Parameters: none. Locks: none. Index: those of queue_state.
SELECT q.topic FROM outboxd.queue_state q WHERE q.status <> 'FAILED'
UNION
SELECT s.topic FROM outboxd.schedules s
ORDER BY topic
