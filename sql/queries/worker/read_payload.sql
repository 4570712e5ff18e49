-- The payload of a claimed row that was too large to come along with its claim. No row: it is gone.
-- $1 id · $2 created_at
-- Locks: none. Index: notification_log_pkey.
SELECT l.payload::text AS payload FROM outboxd.notification_log l WHERE l.id = $1::bigint AND l.created_at = $2::timestamptz
