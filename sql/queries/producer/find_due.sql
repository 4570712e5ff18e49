-- The topics with PENDING rows that are due, found by the second in which they are: one step down the index for each
-- topic of each second, up to now. What is due later is not looked at, but for the first second of the next minute that
-- has any. `first_at` and `first_id` are where a release of the topic has to begin; a time that no program can represent,
-- which the table forbids, is told as the nearest one that can be. Each row also says how many steps were made, where
-- they ended, the time, and in how many ms there is something to look for again; without a topic there is one row.
-- $1 after this second · $2 and this topic in it · $3 steps at most · $4 as in relay/find_due
-- Locks: none. Index: notification_log_second_due, then notification_log_due once for each topic.
WITH RECURSIVE floor AS (
    SELECT g.noticed_at - interval '1 min' AS at FROM outboxd.origin g WHERE $4::bigint > 0
), step AS (
    (SELECT date_bin('1 s', l.due_at, '2000-01-01+00') AS second, l.topic, 1 AS n
       FROM outboxd.notification_log l
      WHERE l.due_at IS NOT NULL AND (date_bin('1 s', l.due_at, '2000-01-01+00'), l.topic) > (greatest($1::timestamptz, (SELECT f.at FROM floor f)), $2::text)
        AND date_bin('1 s', l.due_at, '2000-01-01+00') <= now()
      ORDER BY date_bin('1 s', l.due_at, '2000-01-01+00'), l.topic LIMIT 1)
    UNION ALL
    SELECT n.second, n.topic, s.n + 1
      FROM step s CROSS JOIN LATERAL (
           SELECT date_bin('1 s', l.due_at, '2000-01-01+00') AS second, l.topic FROM outboxd.notification_log l
            WHERE l.due_at IS NOT NULL AND (date_bin('1 s', l.due_at, '2000-01-01+00'), l.topic) > (s.second, s.topic)
              AND date_bin('1 s', l.due_at, '2000-01-01+00') <= now()
            ORDER BY date_bin('1 s', l.due_at, '2000-01-01+00'), l.topic LIMIT 1) n
     WHERE s.n < $3::int
), last AS MATERIALIZED (
    SELECT s.n AS steps, s.second, s.topic FROM step s ORDER BY s.n DESC LIMIT 1
), due AS MATERIALIZED (
    SELECT t.topic, d.due_at, d.id
      FROM (SELECT s.topic, min(s.second) AS second FROM step s GROUP BY s.topic) t
     CROSS JOIN LATERAL (
           SELECT l.due_at, l.id FROM outboxd.notification_log l
            WHERE l.topic = t.topic AND l.due_at >= t.second ORDER BY l.due_at, l.id LIMIT 1) d
), next AS MATERIALIZED (
    (SELECT date_bin('1 s', l.due_at, '2000-01-01+00') AS at FROM outboxd.notification_log l
      WHERE l.due_at IS NOT NULL AND date_bin('1 s', l.due_at, '2000-01-01+00') > now()
        AND date_bin('1 s', l.due_at, '2000-01-01+00') <= now() + interval '1 min'
      ORDER BY date_bin('1 s', l.due_at, '2000-01-01+00'), l.topic LIMIT 1)
    UNION ALL
    (SELECT d.due_at FROM due d WHERE d.due_at > now() ORDER BY d.due_at LIMIT 1)
)
SELECT coalesce((SELECT l.steps FROM last l), 0) AS steps, (SELECT least(greatest(l.second, '0001-01-01+00'), '9999-12-31+00') FROM last l) AS last_second,
       (SELECT l.topic FROM last l) AS last_topic, now() AS asked_at,
       (SELECT ceil(extract(epoch FROM min(n.at) - now()) * 1000)::bigint FROM next n) AS next_in_ms,
       d.topic, least(greatest(d.due_at, '0001-01-01+00'), '9999-12-31+00') AS first_at, d.id AS first_id
  FROM (SELECT) one LEFT JOIN due d ON d.due_at <= now()
