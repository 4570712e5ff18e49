-- A row that no statement of ours can take, or whose record cannot be read: FAILED with the reason, or CANCELED if that
-- was asked for. Touches nothing of it that need be read.
-- Interleavings: only under the epoch at which it was found unusable. A claim or a cancel meanwhile waits for our lock
-- and finds it gone, or came first and is left alone.
-- $1 id · $2 epoch · $3 error
-- Locks: the outbox row, then the log row. Index: outbox_pkey, notification_log_pkey.
WITH ended AS (
    DELETE FROM outboxd.outbox o WHERE o.id = $1::bigint AND o.epoch = $2::int AND o.state <> 'blocked'
    RETURNING o.id, o.epoch, o.attempts, o.cancel, clock_timestamp() AS ended_at, CASE WHEN o.has_turn THEN ARRAY[o.topic, o.ordering_key] END AS released_key
), logged AS (
    UPDATE outboxd.notification_log l
       SET status = CASE WHEN e.cancel THEN 'CANCELED' ELSE 'FAILED' END::outboxd.notification_status, finished_at = e.ended_at,
           failed_at = CASE WHEN NOT e.cancel THEN e.ended_at END, epoch = e.epoch, attempts = e.attempts, error = $3::text
      FROM ended e WHERE l.id = $1::bigint AND l.id = e.id AND l.status = 'QUEUED'
)
SELECT e.released_key FROM ended e
