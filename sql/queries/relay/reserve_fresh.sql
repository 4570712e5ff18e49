-- The fast path: takes what was committed lately, of all topics, for this instance to push: ready → published under one
-- publication. Numbers commit out of order, so the scan begins a little below the last number drawn, now or at the
-- previous poll; what commits later than that the relay's full scan finds. Keys that have a blocked row and nobody with
-- their turn are told, to be admitted. Also ends the publications that are known to have arrived, so that confirming
-- costs no round trip of its own while there is work. The last row tells the last number drawn.
-- Interleavings: other relays skip the rows we lock; a claim needs the epoch and takes ready and published alike;
-- cancel() either got the row first or finds it published. A crash before the push leaves a publication that is
-- recalled; losing this commit in a server crash leaves ready rows and at worst copies, dropped at the claim. The rows
-- are changed by ctid, all in one scan: a join would look up the size of the table for each. A key's turn is asked for
-- by a scalar subquery: a NOT EXISTS may be planned as a hash of all keys.
-- $1 the last number at the previous poll · $2 how far below · $3 topics to leave out · $4 rows at most · $5 instance
-- $6 publications to confirm · $7 the only topics to take (NULL: any) · $8 ids above this only
-- Locks: the rows found. Index: outbox_pkey, then by ctid; a_key_has_at_most_one_live_row; publication_pkey.
WITH confirmed AS (
    DELETE FROM outboxd.publication WHERE id = ANY ($6::bigint[])
), drawn AS MATERIALIZED (
    SELECT s.last_value FROM outboxd.notification_log_id_seq s
), found AS MATERIALIZED (
    SELECT o.ctid, o.id, o.state, o.topic, o.ordering_key FROM outboxd.outbox o
     WHERE o.id > (SELECT greatest(least($1::bigint, d.last_value) - $2::bigint, $8::bigint) FROM drawn d)
       AND o.state IN ('ready', 'blocked') AND o.retry_at IS NULL AND o.topic <> ALL ($3::text[])
       AND ($7::text[] IS NULL OR o.topic = ANY ($7::text[]))
       AND (o.ordering_key IS NULL
            OR (SELECT v.id FROM outboxd.outbox v
                 WHERE v.topic = o.topic AND v.ordering_key = o.ordering_key AND v.has_turn LIMIT 1) IS NULL)
     ORDER BY o.id LIMIT $4::int FOR UPDATE OF o SKIP LOCKED
), published AS (
    INSERT INTO outboxd.publication (instance, ids)
    SELECT $5::int, array_agg(f.id) FROM found f WHERE f.state = 'ready' HAVING count(*) > 0 RETURNING id
), reserved AS (
    UPDATE outboxd.outbox o SET state = 'published', instance = $5::int, published_at = clock_timestamp()
     WHERE o.ctid = ANY (ARRAY(SELECT f.ctid FROM found f WHERE f.state = 'ready')) AND o.state = 'ready'
    RETURNING o.id, o.epoch, o.seq, o.route_step, o.topic
)
SELECT r.id, r.epoch, r.route_step, r.topic, r.seq, (SELECT p.id FROM published p) AS publication, NULL AS ordering_key FROM reserved r
UNION ALL
SELECT f.id, NULL, NULL, f.topic, NULL, NULL, f.ordering_key FROM found f WHERE f.state = 'blocked'
UNION ALL
SELECT d.last_value, NULL, NULL, NULL, NULL, NULL, NULL FROM drawn d
