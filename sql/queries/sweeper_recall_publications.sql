-- Publications not confirmed in time: whoever reserved the rows died or lost its queue between reserve and confirm. The
-- rows become due at once under the same epoch; if the push did arrive, the second message is a copy.
-- $1 unconfirmed for this long, in ms
-- Locks: the publications, then their rows. Index: outbox_lane, by place, for stretches; none for others: one pass over the
-- active set, only if there are any: a join would begin with the pass.
WITH cut AS (
    DELETE FROM outboxd.publication p
     WHERE p.id IN (SELECT c.id FROM outboxd.publication c
                     WHERE c.pushed_at IS NULL AND c.reserved_at < clock_timestamp() - $1::bigint * interval '1 ms' FOR UPDATE SKIP LOCKED)
    RETURNING p.id, p.lane, p.seq_from, p.seq_to
), covered AS MATERIALIZED (
    SELECT w.place FROM cut c CROSS JOIN LATERAL (
           SELECT o.ctid AS place FROM outboxd.outbox o
            WHERE o.lane = c.lane AND o.seq BETWEEN c.seq_from AND c.seq_to AND o.state = 0 AND o.retry_at IS NULL) w
), uncovered AS (
    UPDATE outboxd.outbox o SET retry_at = clock_timestamp()
     WHERE o.ctid = ANY (ARRAY(SELECT w.place FROM covered w)) AND o.state = 0 AND o.retry_at IS NULL
    RETURNING o.id, o.retry_at
), recalled AS (
    UPDATE outboxd.outbox o SET state = 0, retry_at = clock_timestamp(), instance = NULL
     WHERE EXISTS (SELECT FROM cut c WHERE c.lane IS NULL) AND o.state = 1 AND o.batch = ANY (ARRAY(SELECT c.id FROM cut c))
    RETURNING o.id, o.retry_at
), due AS (
    SELECT r.retry_at, r.id FROM recalled r UNION ALL SELECT u.retry_at, u.id FROM uncovered u
)
INSERT INTO outboxd.timer (at, id) SELECT d.retry_at, d.id FROM due d
RETURNING id
