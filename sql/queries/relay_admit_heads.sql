-- Second half: the head of each key that has no live row gets its turn and is published at once (3 → 1). If its topic
-- is paused it only gets a timer (3 → 0): relay_reserve_due parks it in its lane in step with resume(). Who has its turn stands
-- first in the line of its key, so one look tells whether there is one.
-- $1 ordering keys · $2 instance
-- Locks: the heads. Index: a_key_has_at_most_one_live_row, then by place.
WITH head AS MATERIALIZED (
    SELECT h.place, h.ordering_key, t.paused_at IS NULL AS may_go
      FROM (SELECT DISTINCT u AS key FROM unnest($1::text[]) u) k
     CROSS JOIN LATERAL (
           SELECT o.ctid AS place, o.lane, o.state, o.ordering_key FROM outboxd.outbox o
            WHERE o.ordering_key = k.key ORDER BY o.ordering_key, CASE WHEN o.live_key IS NULL THEN o.seq ELSE 0 END LIMIT 1) h
      LEFT JOIN outboxd.topic t ON t.lane = h.lane
     WHERE h.state = 3
), published AS (
    INSERT INTO outboxd.publication (instance)
    SELECT $2::int WHERE EXISTS (SELECT FROM head WHERE may_go)
    RETURNING id
), admitted AS (
    UPDATE outboxd.outbox o
       SET state = CASE WHEN h.may_go THEN 1 ELSE 0 END, live_key = h.ordering_key, next_at = clock_timestamp(),
           retry_at = CASE WHEN NOT h.may_go THEN clock_timestamp() END, batch = b.id, instance = CASE WHEN h.may_go THEN $2::int END
      FROM head h LEFT JOIN published b ON true
     WHERE o.ctid = h.place AND o.state = 3
    RETURNING o.id, o.epoch, o.state, o.batch, o.seq, o.retry_at
), timed AS (
    INSERT INTO outboxd.timer (at, id) SELECT a.retry_at, a.id FROM admitted a WHERE a.retry_at IS NOT NULL
)
SELECT a.id, a.epoch, a.batch FROM admitted a WHERE a.state = 1 ORDER BY a.seq
