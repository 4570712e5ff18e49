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
    RETURNING o.id, o.epoch, o.state, o.attempts, o.live_key, o.created_at, o.send_at, o.topic, o.recipient, o.payload
), done AS (
    SELECT g.*, width_bucket(g.id, $1::bigint[]) AS place, c.at FROM gone g CROSS JOIN (SELECT clock_timestamp() AS at OFFSET 0) c OFFSET 0
), filed AS (
    INSERT INTO outboxd.notification_log
           (id, created_at, send_at, finished_at, status, epoch, attempts, http_status, topic, recipient, payload, channel)
    OVERRIDING SYSTEM VALUE
    SELECT d.id, d.created_at, d.send_at, d.at, 'SENT', d.epoch, d.attempts, ($4::smallint[])[d.place], d.topic, d.recipient, d.payload,
           ($3::text[])[d.place]
      FROM done d WHERE d.topic IS NOT NULL
), updated AS (
    UPDATE outboxd.notification_log l
       SET status = 'SENT', finished_at = d.at, epoch = d.epoch, attempts = d.attempts,
           channel = ($3::text[])[d.place], http_status = ($4::smallint[])[d.place], error = NULL
      FROM (SELECT d.*, f.found_at FROM done d CROSS JOIN LATERAL (
                   SELECT f.ctid AS found_at FROM outboxd.notification_log f WHERE d.topic IS NULL AND f.id = d.id OFFSET 0) f) d
     WHERE l.ctid = d.found_at AND l.status <> 'SENT'
    RETURNING l.id, d.epoch, d.state, d.place, d.live_key, d.at, l.created_at, l.send_at
)
SELECT d.id, d.epoch = ($2::int[])[d.place] AND d.state = 2 AS on_time, d.live_key, d.at AS finished_at,
       greatest(date_part('epoch', d.at - greatest(d.created_at, d.send_at)), 0) AS since_notify_s
  FROM (SELECT d.id, d.epoch, d.state, d.place, d.live_key, d.at, d.created_at, d.send_at FROM done d WHERE d.topic IS NOT NULL
        UNION ALL
        SELECT u.* FROM updated u) d
