-- The first PENDING row to be due of each topic: one probe of the index (topic, due_at, id) per topic.
CREATE OR REPLACE VIEW outboxd._due AS
WITH RECURSIVE first (topic, due_at) AS (
    (SELECT l.topic, l.due_at FROM outboxd.notification_log l WHERE l.due_at IS NOT NULL ORDER BY l.topic, l.due_at LIMIT 1)
    UNION ALL
    SELECT n.topic, n.due_at FROM first f CROSS JOIN LATERAL (
        SELECT l.topic, l.due_at FROM outboxd.notification_log l
         WHERE l.due_at IS NOT NULL AND l.topic > f.topic ORDER BY l.topic, l.due_at LIMIT 1) n
)
SELECT f.topic, f.due_at FROM first f;
