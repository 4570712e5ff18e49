-- Deliveries: the outbox row goes, the log says SENT. A 2xx always wins, so there is no token in the guard; the token
-- only tells whether the lease was over. What is not returned had ended before: worker_record_late_sent.
-- Each CTE carries what the next needs, so that no two lists of a batch are joined: that would be quadratic.
-- Interleavings: claim, sweep and cancel of the same row wait for our lock and then find it gone; another worker's
-- success for it comes second and finds no work.
-- $1 ids · $2 tokens · $3 channels · $4 http statuses
-- Locks: outbox rows, then log rows, by id. Index: outbox_pkey, notification_log_pkey.
WITH done AS (
    DELETE FROM outboxd.outbox o
     USING (SELECT u.id, u.token, u.channel, u.http_status
              FROM unnest($1::bigint[], $2::int[], $3::text[], $4::smallint[]) u(id, token, channel, http_status)
             ORDER BY u.id) u
     WHERE o.id = u.id
    RETURNING o.id, o.epoch, o.state, o.attempts, o.live_key, u.token, u.channel, u.http_status
)
UPDATE outboxd.notification_log l
   SET status = 'SENT', finished_at = clock_timestamp(), epoch = d.epoch, attempts = d.attempts,
       channel = d.channel, http_status = d.http_status, error = NULL
  FROM done d
 WHERE l.id = d.id AND l.status <> 'SENT'
RETURNING l.id, d.epoch = d.token AND d.state = 2 AS on_time, d.live_key, l.finished_at,
          greatest(extract(epoch FROM l.finished_at - greatest(l.created_at, l.send_at)), 0)::float8 AS since_notify_s
