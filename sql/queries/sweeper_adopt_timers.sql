-- A net under the timers: rows whose time came a while ago and that have no timer get one. An instance from before timers were kept
-- apart leaves such rows behind if it is the last of its kind; else there should be none.
-- Interleavings: a row is seen with its timer or without either; of two sweeps one inserts. What is claimed meanwhile leaves a
-- void timer.
-- $1 due for this long, in ms · $2 rows at most
-- Locks: none. Index: timer_pkey; none of outbox: one pass over the active set.
INSERT INTO outboxd.timer (at, id)
SELECT o.retry_at, o.id FROM outboxd.outbox o
 WHERE o.retry_at < now() - $1::bigint * interval '1 ms'
   AND NOT EXISTS (SELECT FROM outboxd.timer t WHERE t.at = o.retry_at AND t.id = o.id OFFSET 0)
 LIMIT $2::int
ON CONFLICT DO NOTHING
RETURNING id
