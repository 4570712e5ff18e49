-- Takes ready rows whose time has come, topic by topic, for this instance to push: ready → published under one
-- publication. One row more per topic tells in how many ms its next one is due, if there is one.
-- Interleavings: those of relay/reserve_fresh.
-- $1 topics · $2 rows at most, per topic · $3 how far to go back in ms (dead index entries) · $4 instance ·
-- $5 from this step of its route on, per topic · $6 ids above this only (0: any); if it is not 0, as in
-- relay/find_due
-- Locks: the rows taken. Index: outbox_due, then by ctid.
WITH found AS MATERIALIZED (
    SELECT w.ctid, w.id FROM unnest($1::text[], $2::int[], $5::smallint[]) t(topic, rows_max, step) CROSS JOIN LATERAL (
        SELECT o.ctid, o.id FROM outboxd.outbox o
         WHERE o.topic = t.topic AND o.retry_at <= now() AND o.state = 'ready' AND o.route_step >= t.step AND (o.id > $6::bigint OR $6::bigint = 0)
           AND o.retry_at > greatest(now() - $3::bigint * interval '1 ms',
                                     (SELECT g.noticed_at - interval '1 min' FROM outboxd.origin g WHERE $6::bigint > 0))
         ORDER BY o.topic, o.retry_at LIMIT t.rows_max FOR UPDATE SKIP LOCKED) w
), published AS (
    INSERT INTO outboxd.publication (instance, ids) SELECT $4::int, array_agg(f.id) FROM found f HAVING count(*) > 0 RETURNING id
), reserved AS (
    UPDATE outboxd.outbox o SET state = 'published', retry_at = NULL, instance = $4::int, published_at = clock_timestamp()
     WHERE o.ctid = ANY (ARRAY(SELECT f.ctid FROM found f)) AND o.state = 'ready'
    RETURNING o.id, o.epoch, o.seq, o.route_step, o.topic
)
SELECT r.id, r.epoch, r.route_step, r.topic, r.seq, (SELECT p.id FROM published p) AS publication, NULL::bigint AS due_in_ms
  FROM reserved r
UNION ALL
SELECT NULL, NULL, NULL, t.topic, NULL, NULL, (extract(epoch FROM least(n.retry_at, now() + interval '100 years') - now()) * 1000)::bigint
  FROM unnest($1::text[]) t(topic) CROSS JOIN LATERAL (
       SELECT o.retry_at FROM outboxd.outbox o WHERE o.topic = t.topic AND o.retry_at > now() ORDER BY o.topic, o.retry_at LIMIT 1) n
