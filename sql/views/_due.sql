-- The topics of the 200 PENDING rows that are due for longest, to the second, and since when each of them is. Rows are
-- found by their time, so topics that wait for theirs cost nothing.
CREATE OR REPLACE VIEW outboxd._due AS
SELECT o.topic, min(o.due_at) AS due_at
  FROM (SELECT l.topic, l.due_at FROM outboxd.notification_log l
         WHERE l.due_at IS NOT NULL AND date_bin('1 s', l.due_at, '2000-01-01+00') <= now()
         ORDER BY date_bin('1 s', l.due_at, '2000-01-01+00'), l.topic LIMIT 200) o
 WHERE o.due_at <= now() GROUP BY o.topic;
