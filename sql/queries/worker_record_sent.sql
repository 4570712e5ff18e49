-- Deliveries: the outbox row goes, the log says SENT. A 2xx always wins, so there is no token in the guard; the token
-- only tells whether the lease was over. What is not returned had ended before: worker_record_late_sent.
-- The rows are named by one array, in order, and what belongs to each is found by its place there, by halving: the plan
-- is the same whatever the statistics say of a table that is empty now and then, and no two lists of a batch are joined.
-- Interleavings: claim, sweep and cancel of the same row wait for our lock and then find it gone; another worker's
-- success for it comes second and finds no work.
-- $1 ids, ascending · $2 tokens · $3 channels · $4 http statuses
-- Locks: outbox rows, then log rows, by id. Index: outbox_pkey, notification_log_pkey.
WITH done AS (
    DELETE FROM outboxd.outbox o WHERE o.id = ANY ($1::bigint[])
    RETURNING o.id, o.epoch, o.state, o.attempts, o.live_key
)
UPDATE outboxd.notification_log l
   SET status = 'SENT', finished_at = clock_timestamp(), epoch = d.epoch, attempts = d.attempts,
       channel = ($3::text[])[d.place], http_status = ($4::smallint[])[d.place], error = NULL
  FROM (SELECT d.*, width_bucket(d.id, $1::bigint[]) AS place FROM done d OFFSET 0) d
 WHERE l.id = d.id AND l.status <> 'SENT'
RETURNING l.id, d.epoch = ($2::int[])[d.place] AND d.state = 2 AS on_time, d.live_key, l.finished_at,
          greatest(date_part('epoch', l.finished_at - greatest(l.created_at, l.send_at)), 0) AS since_notify_s
