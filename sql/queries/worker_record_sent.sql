-- Deliveries: the outbox row goes, and the log says SENT: a letter that the row carried is filed there, others have their
-- row there. A 2xx always wins, so there is no token in the guard; the token only tells whether the lease was over. What is
-- not returned had ended before: worker_record_late_sent.
-- The rows are named by one array, in order, and what belongs to each is found by its place there, by halving: the plan
-- is the same whatever the statistics say of a table that is empty now and then, and no two lists of a batch are joined.
-- Rows of the log are found one by one and changed by their place for the same reason; one that changed in between (a late
-- success) is not returned either.
-- Interleavings: claim, sweep and cancel of the same row wait for our lock and then find it gone; another worker's
-- success for it comes second and finds no work. Whoever deletes the outbox row files its letter, so it is filed once.
-- $1 ids, ascending · $2 tokens · $3 channels · $4 http statuses
-- Locks: outbox rows, then log rows, by id. Index: outbox_pkey, notification_log_pkey.
WITH gone AS (
    DELETE FROM outboxd.outbox o WHERE o.id = ANY ($1::bigint[])
    RETURNING o.id, o.epoch, o.state, o.attempts, o.live_key, o.created_at, o.send_at, o.topic, o.recipient, o.payload,
              width_bucket(o.id, $1::bigint[]) AS place
), filed AS (
    INSERT INTO outboxd.notification_log
           (id, created_at, send_at, finished_at, status, epoch, attempts, http_status, topic, recipient, payload, channel)
    OVERRIDING SYSTEM VALUE
    SELECT g.id, g.created_at, g.send_at, statement_timestamp(), 'SENT', g.epoch, g.attempts, ($4::smallint[])[g.place], g.topic, g.recipient,
           g.payload, ($3::text[])[g.place]
      FROM gone g WHERE g.topic IS NOT NULL
), updated AS (
    UPDATE outboxd.notification_log l
       SET status = 'SENT', finished_at = statement_timestamp(), epoch = g.epoch, attempts = g.attempts,
           channel = ($3::text[])[g.place], http_status = ($4::smallint[])[g.place], error = NULL
      FROM (SELECT g.*, f.found_at FROM gone g CROSS JOIN LATERAL (
                   SELECT f.ctid AS found_at FROM outboxd.notification_log f WHERE g.topic IS NULL AND f.id = g.id OFFSET 0) f) g
     WHERE l.ctid = g.found_at AND l.status <> 'SENT'
    RETURNING l.id, g.epoch, g.state, g.place, g.live_key, l.created_at, l.send_at
)
SELECT d.id, d.epoch = ($2::int[])[d.place] AND d.state = 2 AS on_time, d.live_key, statement_timestamp() AS finished_at,
       greatest(date_part('epoch', statement_timestamp() - greatest(d.created_at, d.send_at)), 0) AS since_notify_s
  FROM (SELECT g.id, g.epoch, g.state, g.place, g.live_key, g.created_at, g.send_at FROM gone g WHERE g.topic IS NOT NULL
        UNION ALL
        SELECT u.* FROM updated u) d
