-- The last net: published long ago, and rows published well after it have been claimed since (the queue is first in, first
-- out) or the queue is empty. What merely waits its turn in a long backlog has not been overtaken.
-- $1 published at least this long ago, in ms · $2 the queue is empty
-- Locks: the rows. Index: none: one pass over the active set.
UPDATE outboxd.outbox o SET state = 0, epoch = o.epoch + 1, retry_at = clock_timestamp(), instance = NULL
  FROM (SELECT w.id FROM outboxd.outbox w
         WHERE w.state = 1 AND w.next_at < clock_timestamp() - $1::bigint * interval '1 ms'
           AND ($2::bool OR w.next_at < (SELECT max(i.claimed_through) FROM outboxd.instance i) - interval '30 s')
         ORDER BY w.id FOR UPDATE SKIP LOCKED) w
 WHERE o.id = w.id
RETURNING o.id
