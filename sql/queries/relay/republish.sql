-- What is published and unclaimed and will not be delivered is due again, under a new epoch: what turns up after all is
-- a stale copy. All of it, because the queue lost data; or what instances have or had in their in-process queues; or
-- what Redis has, because it is out of reach; or, the last net, what was published long ago although Redis is empty or
-- has passed it (a queue is first in, first out): what merely waits its turn in a long backlog has not been overtaken.
-- What is in Redis or not says nothing of what instances hold in their processes. Some pages of the live rows at a
-- time: see relay/find_expired_leases. What is published moves to another page only by ceasing to be so. Answers with
-- how many rows, and how many pages there are.
-- Interleavings: a row that a claim, a cancel or another sweep has locked is passed over; one that moved on before our
-- lock is not published any more.
-- $1 published by these instances (NULL: by any) · $2 published at least this long ago, in ms · $3 overtaken only
-- $4 first page · $5 pages at most · $6 through Redis only
-- Locks: the rows. Index: none: a scan of a range of ctids; then by ctid.
WITH due AS (
    UPDATE outboxd.outbox o SET state = 'ready', epoch = o.epoch + 1, retry_at = clock_timestamp(), instance = NULL
     WHERE o.ctid = ANY (ARRAY(
           SELECT w.ctid FROM outboxd.outbox w
            WHERE w.ctid >= format('(%s,0)', $4::bigint)::tid AND w.ctid < format('(%s,0)', $4::bigint + $5::bigint)::tid
              AND w.state = 'published' AND ($1::int[] IS NULL OR w.instance = ANY ($1::int[]))
              AND w.published_at <= clock_timestamp() - $2::bigint * interval '1 ms'
              AND (NOT $3::bool OR w.published_at < (SELECT max(i.claimed_through) FROM outboxd.instance i
                                                       WHERE i.queue_kind <> 'memory' AND i.fallback_since IS NULL) - interval '30 s')
              AND (NOT $6::bool
                   OR w.instance <> ALL (ARRAY(SELECT i.id FROM outboxd.instance i
                                                WHERE i.stopped_at IS NULL AND (i.queue_kind = 'memory' OR i.fallback_since IS NOT NULL))))
              FOR UPDATE SKIP LOCKED))
       AND o.state = 'published'
    RETURNING o.id
)
SELECT count(*) AS rows, pg_relation_size('outboxd.outbox') / current_setting('block_size')::bigint AS pages FROM due
