-- Outbox rows of notifications that are SENT: an operator's retry slipped in before a late success. See
-- worker/record_late_sent.
-- The rows are named by the array as well as joined: a join alone may be planned as a scan of all that is live.
-- Interleavings: those of worker/record_late_sent, whose transaction holds the log rows.
-- $1 ids
-- Locks: the rows. Index: outbox_pkey, notification_log_pkey.
DELETE FROM outboxd.outbox o USING outboxd.notification_log l
 WHERE o.id = ANY ($1::bigint[]) AND l.id = ANY ($1::bigint[]) AND l.id = o.id AND l.status = 'SENT'
RETURNING CASE WHEN o.has_turn THEN ARRAY[o.topic, o.ordering_key] END AS released_key
