-- FAILED or CANCELED → QUEUED. False: it was neither.
-- $1 token, under whose name it is audited · $2 id
-- Locks and indexes: those of the function.
SELECT outboxd.retry($2::bigint) FROM (SELECT set_config('outboxd.token', $1::text, true) OFFSET 0) t
