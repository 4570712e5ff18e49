-- What the URL of each message may be made of, for channels whose URL comes from the row. A hint for the limits:
-- nothing is locked, and what is called is what the claim returns.
-- $1 ids
-- Locks: none. Index: notification_log_pkey.
SELECT l.id, l.topic, l.recipient, l.payload::text AS payload, l.headers::text AS headers, l.created_at
  FROM outboxd.notification_log l WHERE l.id = ANY ($1::bigint[])
