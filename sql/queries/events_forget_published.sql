-- These events have been appended. Only under the duty: an owner that was paused and woke up late forgets nothing that
-- its successor has yet to append.
-- $1 seqs · $2 instance · $3 duty
-- Locks: the rows; the duty FOR SHARE. Index: event_outbox_pkey, duty_pkey.
WITH held AS MATERIALIZED (
    SELECT 1 FROM outboxd.duty d
     WHERE d.name = $3::text AND d.owner = $2::int AND d.until > clock_timestamp() FOR SHARE
)
DELETE FROM outboxd.event_outbox o WHERE o.seq = ANY ($1::bigint[]) AND EXISTS (SELECT FROM held)
RETURNING o.seq
