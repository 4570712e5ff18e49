-- Deliveries: the outbox row goes, the log says SENT. A 2xx always wins, so there is no token in the guard; the token
-- only tells whether the lease was over. `had_work` false: no outbox row (it had ended before): worker_record_late_sent.
-- Interleavings: claim, sweep and cancel of the same row wait for our lock and then find it gone; another worker's
-- success for it comes second and finds no work.
-- $1 ids · $2 tokens · $3 channels · $4 http statuses
-- Locks: outbox rows, then log rows, by id. Index: outbox_pkey, notification_log_pkey.
WITH outcome AS (
    SELECT u.id, u.token, u.channel, u.http_status
      FROM unnest($1::bigint[], $2::int[], $3::text[], $4::smallint[]) u(id, token, channel, http_status)
), done AS (
    DELETE FROM outboxd.outbox o USING (SELECT u.id FROM outcome u ORDER BY u.id) u WHERE o.id = u.id
    RETURNING o.id, o.epoch, o.state, o.attempts, o.live_key
), recorded AS (
    UPDATE outboxd.notification_log l
       SET status = 'SENT', finished_at = clock_timestamp(), epoch = d.epoch, attempts = d.attempts,
           channel = u.channel, http_status = u.http_status, error = NULL
      FROM done d JOIN outcome u ON u.id = d.id
     WHERE l.id = d.id AND l.status <> 'SENT'
    RETURNING l.id, l.finished_at,
              greatest(extract(epoch FROM l.finished_at - greatest(l.created_at, l.send_at)), 0)::float8 AS since_notify_s
)
SELECT u.id, d.id IS NOT NULL AS had_work, r.id IS NOT NULL AS recorded,
       d.epoch = u.token AND d.state = 2 AS on_time, d.live_key, r.finished_at, r.since_notify_s
  FROM outcome u LEFT JOIN done d ON d.id = u.id LEFT JOIN recorded r ON r.id = u.id
