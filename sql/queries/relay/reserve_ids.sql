-- Takes these rows, just committed by an app that embeds the crate, for it to push: ready → published under one
-- publication. What was not due, waits behind its key or was taken meanwhile is left alone.
-- Interleavings: those of relay/reserve_fresh.
-- $1 ids · $2 instance
-- Locks: the rows taken. Index: outbox_pkey, then by ctid.
WITH found AS MATERIALIZED (
    SELECT o.ctid, o.id FROM outboxd.outbox o
     WHERE o.id = ANY ($1::bigint[]) AND o.state = 'ready' AND o.retry_at IS NULL ORDER BY o.id FOR UPDATE SKIP LOCKED
), published AS (
    INSERT INTO outboxd.publication (instance, ids) SELECT $2::int, array_agg(f.id) FROM found f HAVING count(*) > 0 RETURNING id
)
UPDATE outboxd.outbox o SET state = 'published', instance = $2::int, published_at = clock_timestamp()
 WHERE o.ctid = ANY (ARRAY(SELECT f.ctid FROM found f)) AND o.state = 'ready'
RETURNING o.id, o.epoch, o.route_step, o.topic, o.seq, (SELECT p.id FROM published p) AS publication
