-- Due PENDING rows become QUEUED, with their outbox rows, in one statement, topic by topic. The first $5 of them, topics
-- taking turns, are reserved for this instance's own push at once (state 1 under a new publication), so the relay does
-- not push them too; the rest, and rows of paused topics, wait for the relay (0) or behind their key (3). Rows that can
-- never be sent become FAILED and hold up nobody. One row more per topic says how many were found and which was the last.
-- Interleavings: other producers skip the rows we lock; cancel() is guarded by PENDING like we are; a crash
-- before commit leaves PENDING, after it leaves a publication that the sweep finds unconfirmed.
-- $1 topics · $2 after which due_at, per topic, and $3 which id (dead index entries) · $4 rows at most, per topic
-- $5 rows to reserve at most · $6 instance
-- Locks: the rows taken. Index: notification_log_due.
WITH due AS MATERIALIZED (
    SELECT l.id, l.topic, l.ordering_key, l.epoch, l.due_at, l.n,
           CASE WHEN pg_column_size(l.payload) > 2000 AND octet_length(l.payload::text) > s.payload_bytes_max
                THEN format('payload has %s bytes, the limit is %s', octet_length(l.payload::text), s.payload_bytes_max)
           END AS refusal
      FROM outboxd.setting s CROSS JOIN LATERAL (
           SELECT w.id, w.topic, w.ordering_key, w.epoch, w.due_at, w.payload, t.n
             FROM unnest($1::text[], $2::timestamptz[], $3::bigint[], $4::int[]) WITH ORDINALITY t(topic, after_at, after_id, take, n)
            CROSS JOIN LATERAL (
                  SELECT l.id, l.topic, l.ordering_key, l.epoch, l.due_at, l.payload FROM outboxd.notification_log l
                   WHERE l.topic = t.topic AND l.due_at <= now() AND (l.due_at, l.id) > (t.after_at, t.after_id)
                   ORDER BY l.due_at, l.id LIMIT t.take FOR UPDATE SKIP LOCKED) w) l
), refused AS (
    -- By an array: joined, a generic plan walks the whole log to find what is mostly nothing.
    UPDATE outboxd.notification_log l
       SET status = 'FAILED', finished_at = c.at, failed_at = c.at, error = (SELECT d.refusal FROM due d WHERE d.id = l.id)
      FROM (SELECT clock_timestamp() AS at) c
     WHERE l.id = ANY (ARRAY(SELECT d.id FROM due d WHERE d.refusal IS NOT NULL)) AND l.status = 'PENDING'
    RETURNING l.id
), released AS (
    UPDATE outboxd.notification_log l SET status = 'QUEUED'
      FROM due d WHERE l.id = d.id AND d.refusal IS NULL AND l.status = 'PENDING'
    RETURNING l.id, l.epoch, l.ordering_key, l.topic, d.n, d.due_at
), turns AS (
    SELECT r.id, r.epoch, r.ordering_key, r.due_at, coalesce(t.lane, 0) AS lane, t.paused_at,
           row_number() OVER (PARTITION BY r.n ORDER BY r.due_at, r.id) AS turn
      FROM released r LEFT JOIN outboxd.topic t ON t.name = r.topic
), planned AS (
    SELECT u.id, u.epoch, u.ordering_key, u.lane,
           CASE WHEN u.ordering_key IS NOT NULL THEN 3 WHEN u.paused_at IS NOT NULL THEN 0
                WHEN row_number() OVER (PARTITION BY u.ordering_key IS NULL AND u.paused_at IS NULL ORDER BY u.turn, u.due_at, u.id) <= $5::int
                THEN 1 ELSE 0 END AS state
      FROM turns u ORDER BY u.due_at, u.id
), published AS (
    INSERT INTO outboxd.publication (instance)
    SELECT $6::int WHERE EXISTS (SELECT FROM planned WHERE state = 1)
    RETURNING id
), queued AS (
    INSERT INTO outboxd.outbox (id, epoch, lane, ordering_key, state, batch, instance)
    SELECT p.id, p.epoch, p.lane, p.ordering_key, p.state,
           CASE WHEN p.state = 1 THEN b.id END, CASE WHEN p.state = 1 THEN $6::int END
      FROM planned p LEFT JOIN published b ON true
    RETURNING id, epoch, state, batch, lane
)
SELECT q.id, q.epoch, q.state, q.batch, q.lane, NULL::bigint AS topic, NULL::timestamptz AS last_at, NULL::bigint AS found FROM queued q
UNION ALL
SELECT f.id, 0, -1, NULL, 0, NULL, NULL, NULL FROM refused f
UNION ALL
SELECT (array_agg(d.id ORDER BY d.due_at DESC, d.id DESC))[1], 0, -2, NULL, 0, d.n, max(d.due_at), count(*) FROM due d GROUP BY d.n
