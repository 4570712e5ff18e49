-- What is published and unclaimed and will not be delivered is due again, under a new epoch: what turns up after all is a stale
-- copy. All of it, because the queue lost data; or what dead instances had in their in-process queues; or, the last
-- net, what was published long ago although the queue is empty or has passed it (the queue is first in, first out): what
-- merely waits its turn in a long backlog has not been overtaken.
-- $1 published by these instances (NULL: by any) · $2 published at least this long ago, in ms · $3 overtaken only
-- Locks: the rows. Index: none: one pass over the active set; then by ctid.
UPDATE outboxd.outbox o SET state = 'ready', epoch = o.epoch + 1, retry_at = clock_timestamp(), instance = NULL
 WHERE o.ctid = ANY (ARRAY(
       SELECT w.ctid FROM outboxd.outbox w
        WHERE w.state = 'published' AND ($1::int[] IS NULL OR w.instance = ANY ($1::int[]))
          AND w.published_at <= clock_timestamp() - $2::bigint * interval '1 ms'
          AND (NOT $3::bool OR w.published_at < (SELECT max(i.claimed_through) FROM outboxd.instance i) - interval '30 s')
          FOR UPDATE SKIP LOCKED))
   AND o.state = 'published'
RETURNING o.id
