-- The queue lost data (or an instance's in-process queue is gone with it): what was published before the loss was noticed
-- and is unclaimed becomes due at once under a new epoch, so that a message that turns up after all is a stale copy.
-- $1 published by these instances only (NULL: by any)
-- Locks: the rows. Index: none: one pass over the active set.
UPDATE outboxd.outbox o SET state = 0, epoch = o.epoch + 1, retry_at = clock_timestamp(), instance = NULL
  FROM (SELECT w.id FROM outboxd.outbox w
         WHERE w.state = 1 AND ($1::int[] IS NULL OR w.instance = ANY ($1::int[])) ORDER BY w.id FOR UPDATE SKIP LOCKED) w
 WHERE o.id = w.id
RETURNING o.id
