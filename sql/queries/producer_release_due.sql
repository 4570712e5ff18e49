-- Due PENDING rows become QUEUED, with their outbox rows, in one statement. The first $3 of them are reserved for
-- this instance's own push at once (state 1 under a new publication), so the relay does not push them too; the
-- rest, and rows of paused topics, wait for the relay (0) or behind their key (3). Rows that can never be sent
-- become FAILED and hold up nobody.
-- Interleavings: other producers skip the rows we lock; cancel() is guarded by PENDING like we are; a crash
-- before commit leaves PENDING, after it leaves a publication that the sweep finds unconfirmed.
-- $1 how far to look back in ms (dead index entries) · $2 rows at most · $3 rows to reserve at most · $4 instance
-- Locks: the rows taken. Index: notification_log_due.
WITH due AS MATERIALIZED (
    SELECT l.id, l.topic, l.ordering_key, l.epoch, l.due_at,
           CASE WHEN pg_column_size(l.payload) > 2000 AND octet_length(l.payload::text) > s.payload_bytes_max
                THEN format('payload has %s bytes, the limit is %s', octet_length(l.payload::text), s.payload_bytes_max)
           END AS refusal
      FROM outboxd.setting s CROSS JOIN LATERAL (
           SELECT l.id, l.topic, l.ordering_key, l.epoch, l.due_at, l.payload FROM outboxd.notification_log l
            WHERE l.due_at <= now() AND l.due_at > now() - $1::bigint * interval '1 ms'
            ORDER BY l.due_at LIMIT $2::int FOR UPDATE SKIP LOCKED) l
), refused AS (
    UPDATE outboxd.notification_log l SET status = 'FAILED', finished_at = clock_timestamp(), error = d.refusal
      FROM due d WHERE l.id = d.id AND d.refusal IS NOT NULL AND l.status = 'PENDING'
    RETURNING l.id
), released AS (
    UPDATE outboxd.notification_log l SET status = 'QUEUED'
      FROM due d WHERE l.id = d.id AND d.refusal IS NULL AND l.status = 'PENDING'
    RETURNING l.id, l.epoch, l.topic, l.ordering_key, d.due_at
), planned AS (
    SELECT r.id, r.epoch, r.ordering_key, coalesce(t.lane, 0) AS lane,
           CASE WHEN r.ordering_key IS NOT NULL THEN 3 WHEN t.paused_at IS NOT NULL THEN 0
                WHEN row_number() OVER (PARTITION BY r.ordering_key IS NULL AND t.paused_at IS NULL ORDER BY r.due_at, r.id) <= $3::int THEN 1
                ELSE 0 END AS state
      FROM released r LEFT JOIN outboxd.topic t ON t.name = r.topic
     ORDER BY r.due_at, r.id
), published AS (
    INSERT INTO outboxd.publication (id, instance)
    SELECT nextval('outboxd.publication_id'), $4::int WHERE EXISTS (SELECT FROM planned WHERE state = 1)
    RETURNING id
), queued AS (
    INSERT INTO outboxd.outbox (id, epoch, lane, ordering_key, state, batch, instance)
    SELECT p.id, p.epoch, p.lane, p.ordering_key, p.state,
           CASE WHEN p.state = 1 THEN b.id END, CASE WHEN p.state = 1 THEN $4::int END
      FROM planned p LEFT JOIN published b ON true
    RETURNING id, epoch, state, batch, lane
)
SELECT q.id, q.epoch, q.state, q.batch, q.lane FROM queued q
UNION ALL
SELECT f.id, 0, -1, NULL, 0 FROM refused f
