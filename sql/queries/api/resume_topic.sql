-- Ends that.
-- $1 token, under whose name it is audited · $2 topic
-- Locks and indexes: those of the function.
SELECT outboxd.resume($2::text) FROM (SELECT set_config('outboxd.token', $1::text, true) OFFSET 0) t
