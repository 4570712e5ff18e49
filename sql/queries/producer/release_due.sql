-- Due PENDING rows become QUEUED, with their outbox rows, in one statement, topic by topic. Rows without a key are
-- ready and due at once; those with one are blocked until the relay admits them. One row more per topic says how many
-- were found and which was the last. A keyed row goes only if no earlier due PENDING row of its key is left out:
-- another producer may hold that one, and whoever commits first would overtake. What another producer holds is still
-- PENDING in our snapshot, so we wait for its commit, and its seq is drawn before ours. Scan and key have one order,
-- (due_at, id): the first due row of a key can always go, so nothing waits for ever.
-- Interleavings: other producers skip the rows we lock; cancel() is guarded by PENDING like we are; a crash before
-- commit leaves PENDING, after it leaves rows that any relay finds by their retry_at.
-- $1 topics · $2 after which due_at, per topic, and $3 which id (dead index entries) · $4 rows at most, per topic
-- $5 ids above this only (0: any)
-- Locks: the rows taken. Index: notification_log_due, notification_log_due_key, notification_log_pkey.
WITH due AS MATERIALIZED (
    SELECT w.ctid, w.id, w.topic, w.ordering_key, w.epoch, w.due_at, t.n
      FROM unnest($1::text[], $2::timestamptz[], $3::bigint[], $4::int[]) WITH ORDINALITY t(topic, after_at, after_id, rows_max, n)
     CROSS JOIN LATERAL (
           SELECT l.ctid, l.id, l.topic, l.ordering_key, l.epoch, l.due_at FROM outboxd.notification_log l
            WHERE l.topic = t.topic AND l.due_at <= now() AND (l.due_at, l.id) > (t.after_at, t.after_id) AND (l.id > $5::bigint OR $5::bigint = 0)
            ORDER BY l.due_at, l.id LIMIT t.rows_max FOR UPDATE SKIP LOCKED) w
), taken AS MATERIALIZED (
    SELECT array_agg(d.id) AS ids FROM due d WHERE d.ordering_key IS NOT NULL
), missing AS MATERIALIZED (
    SELECT k.topic, k.ordering_key, m.due_at, m.id
      FROM (SELECT DISTINCT d.topic, d.ordering_key FROM due d WHERE d.ordering_key IS NOT NULL) k
     CROSS JOIN LATERAL (
           SELECT e.due_at, e.id FROM outboxd.notification_log e
            WHERE e.topic = k.topic AND e.ordering_key = k.ordering_key AND e.due_at <= now()
              AND (e.id > $5::bigint OR $5::bigint = 0) AND e.id <> ALL ((SELECT t.ids FROM taken t)::bigint[])
            ORDER BY e.topic, e.ordering_key, e.due_at, e.id LIMIT 1) m
), going AS MATERIALIZED (
    SELECT d.ctid, d.id, d.topic, d.ordering_key, d.epoch, d.due_at FROM due d
     WHERE d.ordering_key IS NULL
        OR NOT EXISTS (SELECT FROM missing m WHERE m.topic = d.topic AND m.ordering_key = d.ordering_key
                                               AND (m.due_at, m.id) < (d.due_at, d.id))
), released AS (
    UPDATE outboxd.notification_log l SET status = 'QUEUED'
     WHERE l.ctid = ANY (ARRAY(SELECT g.ctid FROM going g)) AND l.status = 'PENDING'
    RETURNING l.id
), queued AS (
    INSERT INTO outboxd.outbox (id, epoch, topic, ordering_key, state, retry_at)
    SELECT g.id, g.epoch, g.topic, g.ordering_key,
           CASE WHEN g.ordering_key IS NULL THEN 'ready' ELSE 'blocked' END::outboxd.state,
           CASE WHEN g.ordering_key IS NULL THEN clock_timestamp() END
      FROM going g WHERE g.id = ANY (ARRAY(SELECT r.id FROM released r)) ORDER BY g.due_at, g.id
    RETURNING topic, ordering_key
)
SELECT NULL::bigint AS scan, NULL::timestamptz AS last_at, NULL::bigint AS last_id, count(*) AS found, q.topic, q.ordering_key
  FROM queued q GROUP BY q.topic, q.ordering_key
UNION ALL
SELECT d.n, max(d.due_at), (array_agg(d.id ORDER BY d.due_at DESC, d.id DESC))[1], count(*), NULL, NULL FROM due d GROUP BY d.n
