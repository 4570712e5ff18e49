-- Messages of a paused topic go back: 1, or 0 in a stretch, → 0 with a timer that has run out, so that the relay parks them in
-- their lane in step with resume(). Nobody's attempt is burned.
-- $1 ids · $2 epochs
-- Locks: the rows. Index: outbox_pkey.
WITH returned AS (
    UPDATE outboxd.outbox o SET state = 0, retry_at = clock_timestamp(), instance = NULL
      FROM (SELECT m.id, m.epoch FROM unnest($1::bigint[], $2::int[]) m(id, epoch) ORDER BY 1) m
     WHERE o.id = m.id AND o.epoch = m.epoch AND (o.state = 1 OR (o.state = 0 AND o.retry_at IS NULL))
    RETURNING o.id, o.retry_at
)
INSERT INTO outboxd.timer (at, id) SELECT r.retry_at, r.id FROM returned r
