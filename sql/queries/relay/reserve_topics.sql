-- Takes ready rows topic by topic, each from its position on, for this instance to push: ready → published under one
-- publication. Backlogs and the relay's full scan go this way. Confirms on the way, like relay/reserve_fresh.
-- Interleavings: those of relay/reserve_fresh.
-- $1 topics · $2 after which seq, per topic · $3 rows at most, per topic · $4 instance · $5 publications to confirm
-- $6 ids above this only (0: any): of those that a scan reads
-- Locks: the rows taken. Index: outbox_fresh, then by ctid; publication_pkey.
WITH confirmed AS (
    DELETE FROM outboxd.publication WHERE id = ANY ($5::bigint[])
), found AS MATERIALIZED (
    SELECT w.ctid, w.id FROM unnest($1::text[], $2::bigint[], $3::int[]) t(topic, after, rows_max) CROSS JOIN LATERAL (
        SELECT o.ctid, o.id FROM outboxd.outbox o
         WHERE o.topic = t.topic AND o.seq > t.after AND o.ordering_key IS NULL AND o.retry_at IS NULL AND o.state = 'ready'
         ORDER BY o.topic, o.seq LIMIT t.rows_max FOR UPDATE SKIP LOCKED) w
     WHERE w.id > $6::bigint OR $6::bigint = 0
), published AS (
    INSERT INTO outboxd.publication (instance, ids) SELECT $4::int, array_agg(f.id) FROM found f HAVING count(*) > 0 RETURNING id
)
UPDATE outboxd.outbox o SET state = 'published', instance = $4::int, published_at = clock_timestamp()
 WHERE o.ctid = ANY (ARRAY(SELECT f.ctid FROM found f)) AND o.state = 'ready'
RETURNING o.id, o.epoch, o.route_step, o.topic, o.seq, (SELECT p.id FROM published p) AS publication
