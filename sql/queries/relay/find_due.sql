-- The topics with rows that came back or late (retries, heads of keys, recalled and released rows) and are due, found by
-- the second in which they are: one step down the index for each topic of each second, up to now. What is due later is
-- not looked at, but for the first second of the next minute that has any. Each row also says how many steps were made,
-- where they ended, the time, and in how many ms there is something to look for again; without a topic there is one row.
-- $1 after this second · $2 and this topic in it · $3 steps at most · $4 while what a copy brought is set aside, the last
-- id of it: then only what is due since the copy was noticed; else 0
-- Locks: none. Index: outbox_second_due, then outbox_due once for each topic of the current second.
WITH RECURSIVE floor AS (
    SELECT g.noticed_at - interval '1 min' AS at FROM outboxd.origin g WHERE $4::bigint > 0
), step AS (
    (SELECT date_bin('1 s', o.retry_at, '2000-01-01+00') AS second, o.topic, 1 AS n
       FROM outboxd.outbox o
      WHERE o.retry_at IS NOT NULL AND (date_bin('1 s', o.retry_at, '2000-01-01+00'), o.topic) > (greatest($1::timestamptz, (SELECT f.at FROM floor f)), $2::text)
        AND date_bin('1 s', o.retry_at, '2000-01-01+00') <= now()
      ORDER BY date_bin('1 s', o.retry_at, '2000-01-01+00'), o.topic LIMIT 1)
    UNION ALL
    SELECT n.second, n.topic, s.n + 1
      FROM step s CROSS JOIN LATERAL (
           SELECT date_bin('1 s', o.retry_at, '2000-01-01+00') AS second, o.topic FROM outboxd.outbox o
            WHERE o.retry_at IS NOT NULL AND (date_bin('1 s', o.retry_at, '2000-01-01+00'), o.topic) > (s.second, s.topic)
              AND date_bin('1 s', o.retry_at, '2000-01-01+00') <= now()
            ORDER BY date_bin('1 s', o.retry_at, '2000-01-01+00'), o.topic LIMIT 1) n
     WHERE s.n < $3::int
), last AS MATERIALIZED (
    SELECT s.n AS steps, s.second, s.topic FROM step s ORDER BY s.n DESC LIMIT 1
), due AS MATERIALIZED (
    SELECT t.topic, CASE WHEN t.second <= now() - interval '1 s' THEN t.second ELSE (
               SELECT o.retry_at FROM outboxd.outbox o WHERE o.topic = t.topic AND o.retry_at >= t.second
                ORDER BY o.topic, o.retry_at LIMIT 1) END AS at
      FROM (SELECT s.topic, min(s.second) AS second FROM step s GROUP BY s.topic) t
), next AS MATERIALIZED (
    SELECT date_bin('1 s', o.retry_at, '2000-01-01+00') AS at FROM outboxd.outbox o
     WHERE o.retry_at IS NOT NULL AND date_bin('1 s', o.retry_at, '2000-01-01+00') > now()
       AND date_bin('1 s', o.retry_at, '2000-01-01+00') <= now() + interval '1 min'
     ORDER BY date_bin('1 s', o.retry_at, '2000-01-01+00'), o.topic LIMIT 1
)
SELECT coalesce((SELECT l.steps FROM last l), 0) AS steps, (SELECT greatest(l.second, '0001-01-01+00') FROM last l) AS last_second,
       (SELECT l.topic FROM last l) AS last_topic, now() AS asked_at,
       (SELECT ceil(extract(epoch FROM n.at - now()) * 1000)::bigint FROM next n) AS next_in_ms,
       d.topic, greatest(ceil(extract(epoch FROM d.at - now()) * 1000), 0)::bigint AS due_in_ms
  FROM (SELECT) one LEFT JOIN due d ON d.at IS NOT NULL
