-- The queue lost data (or an instance's in-process queue is gone with it): what was published before the loss was noticed
-- and is unclaimed becomes due at once under a new epoch, so that a message that turns up after all is a stale copy.
-- $1 published by these instances only (NULL: by any)
-- Locks: the stretches, the rows. Index: outbox_lane, by place, for stretches; none for others: one pass over the active set.
WITH over AS (
    DELETE FROM outboxd.publication p WHERE $1::int[] IS NULL AND p.lane IS NOT NULL
    RETURNING p.lane, p.seq_from, p.seq_to
), covered AS MATERIALIZED (
    SELECT w.place FROM over c CROSS JOIN LATERAL (
           SELECT o.ctid AS place FROM outboxd.outbox o
            WHERE o.lane = c.lane AND o.seq BETWEEN c.seq_from AND c.seq_to AND o.state = 0 AND o.retry_at IS NULL) w
), uncovered AS (
    UPDATE outboxd.outbox o SET epoch = o.epoch + 1, retry_at = clock_timestamp()
     WHERE o.ctid = ANY (ARRAY(SELECT w.place FROM covered w)) AND o.state = 0 AND o.retry_at IS NULL
    RETURNING o.id, o.retry_at
), lost AS (
    UPDATE outboxd.outbox o SET state = 0, epoch = o.epoch + 1, retry_at = clock_timestamp(), instance = NULL
     WHERE o.ctid = ANY (ARRAY(
           SELECT w.ctid FROM outboxd.outbox w
            WHERE w.state = 1 AND ($1::int[] IS NULL OR w.instance = ANY ($1::int[])) FOR UPDATE SKIP LOCKED))
    RETURNING o.id, o.retry_at
), due AS (
    SELECT l.retry_at, l.id FROM lost l UNION ALL SELECT u.retry_at, u.id FROM uncovered u
)
INSERT INTO outboxd.timer (at, id) SELECT d.retry_at, d.id FROM due d
RETURNING id
