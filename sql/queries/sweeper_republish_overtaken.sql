-- The last net: published long ago, and rows published well after it have been claimed since (the queue is first in, first
-- out) or the queue is empty. What merely waits its turn in a long backlog has not been overtaken.
-- $1 published at least this long ago, in ms · $2 the queue is empty
-- Locks: the stretches, the rows. Index: outbox_lane, by place, for stretches; none for others: one pass over the active set.
WITH over AS (
    DELETE FROM outboxd.publication p
     WHERE p.lane IS NOT NULL AND p.pushed_at < clock_timestamp() - $1::bigint * interval '1 ms'
       AND ($2::bool OR p.pushed_at < (SELECT max(i.claimed_through) FROM outboxd.instance i) - interval '30 s')
    RETURNING p.lane, p.seq_from, p.seq_to
), covered AS MATERIALIZED (
    SELECT w.place FROM over c CROSS JOIN LATERAL (
           SELECT o.ctid AS place FROM outboxd.outbox o
            WHERE o.lane = c.lane AND o.seq BETWEEN c.seq_from AND c.seq_to AND o.state = 0 AND o.retry_at IS NULL) w
), uncovered AS (
    UPDATE outboxd.outbox o SET epoch = o.epoch + 1, retry_at = clock_timestamp()
     WHERE o.ctid = ANY (ARRAY(SELECT w.place FROM covered w)) AND o.state = 0 AND o.retry_at IS NULL
    RETURNING o.id, o.retry_at
), overtaken AS (
    UPDATE outboxd.outbox o SET state = 0, epoch = o.epoch + 1, retry_at = clock_timestamp(), instance = NULL
     WHERE o.ctid = ANY (ARRAY(
           SELECT w.ctid FROM outboxd.outbox w
            WHERE w.state = 1 AND w.next_at < clock_timestamp() - $1::bigint * interval '1 ms'
              AND ($2::bool OR w.next_at < (SELECT max(i.claimed_through) FROM outboxd.instance i) - interval '30 s')
              FOR UPDATE SKIP LOCKED))
    RETURNING o.id, o.retry_at
), due AS (
    SELECT v.retry_at, v.id FROM overtaken v UNION ALL SELECT u.retry_at, u.id FROM uncovered u
)
INSERT INTO outboxd.timer (at, id) SELECT d.retry_at, d.id FROM due d
RETURNING id
