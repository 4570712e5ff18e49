-- Ends a bulk action after its current batch. False: it had ended.
-- $1 token, under whose name it is audited · $2 id
-- Locks and indexes: those of the function.
SELECT outboxd.stop_bulk($2::bigint) FROM (SELECT set_config('outboxd.token', $1::text, true) OFFSET 0) t
