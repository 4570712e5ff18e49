-- Which of these notifications another's open transaction has locked (an operator's cancel() before its COMMIT, say):
-- those whose live row or record is there and cannot be locked at once. Asked only after a statement waited for a lock
-- in vain, for some seconds after that, and by a sweep that is about to end leases; never else on the way of a delivery.
-- Interleavings: the answer is a hint. Its own locks are gone when it is read, and whoever goes on decides again under
-- new ones: a row locked since then is waited for and asked about once more. A row that ended while we asked counts as
-- locked, and as free the next time. Two that ask at once may each see the other's rows as locked: whoever holds a row
-- goes on with it.
-- $1 ids
-- Locks: what is free of the live rows, then of the records, until the end of the statement; what is locked is skipped.
-- Index: outbox_pkey, notification_log_pkey.
WITH free_work AS MATERIALIZED (
    SELECT o.id FROM outboxd.outbox o WHERE o.id = ANY ($1::bigint[]) FOR UPDATE SKIP LOCKED
), free_record AS MATERIALIZED (
    SELECT l.id FROM outboxd.notification_log l WHERE l.id = ANY ($1::bigint[]) FOR NO KEY UPDATE SKIP LOCKED
)
SELECT o.id FROM outboxd.outbox o WHERE o.id = ANY ($1::bigint[]) AND o.id NOT IN (SELECT f.id FROM free_work f)
UNION ALL
SELECT l.id FROM outboxd.notification_log l WHERE l.id = ANY ($1::bigint[]) AND l.id NOT IN (SELECT f.id FROM free_record f)
