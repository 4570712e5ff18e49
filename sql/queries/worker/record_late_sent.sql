-- Deliveries of rows that had ended: FAILED or CANCELED become SENT (a late success), SENT stays (a duplicate).
-- Interleavings: an operator's retry may bring a new outbox row at any moment, so this runs in one transaction with
-- worker/drop_sent_work, which comes second and, the log row being locked by us, sees it.
-- The rows are named by the array as well as joined: a join alone may be planned as a scan of the whole history.
-- $1 ids · $2 tokens · $3 channels · $4 http statuses · $5 created_at · $6 instance · $7 the provider's ids
-- Locks: log rows by id. Index: notification_log_pkey.
WITH outcome AS (
    SELECT u.id, u.token, u.channel, u.http_status, u.created_at, u.provider_id
      FROM unnest($1::bigint[], $2::int[], $3::text[], $4::smallint[], $5::timestamptz[], $7::text[])
           u(id, token, channel, http_status, created_at, provider_id)
), locked AS MATERIALIZED (
    SELECT l.id, l.status FROM outboxd.notification_log l JOIN outcome u ON l.id = u.id AND l.created_at = u.created_at
     WHERE l.id = ANY ($1::bigint[])
     ORDER BY l.id FOR UPDATE OF l
), recorded AS (
    UPDATE outboxd.notification_log l
       SET status = 'SENT', finished_at = clock_timestamp(), failed_at = NULL, epoch = greatest(l.epoch, u.token),
           channel = u.channel, http_status = u.http_status, error = NULL, provider_id = u.provider_id
      FROM locked k JOIN outcome u ON u.id = k.id
     WHERE l.id = ANY ($1::bigint[]) AND l.id = k.id AND k.status <> 'SENT'
    RETURNING l.id
)
INSERT INTO outboxd.attempt (notification_id, token, instance, http_status, outcome, channel, provider_id)
SELECT u.id, u.token, $6::int, u.http_status, CASE WHEN r.id IS NULL THEN 'duplicate' ELSE 'late success' END, u.channel,
       u.provider_id
  FROM outcome u JOIN locked k ON k.id = u.id LEFT JOIN recorded r ON r.id = u.id
RETURNING notification_id, outcome
