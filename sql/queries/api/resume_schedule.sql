-- Lets a paused schedule run again.
-- $1 token, under whose name it is audited · $2 name
-- Locks and indexes: those of the function.
SELECT outboxd.resume_schedule($2::text) FROM (SELECT set_config('outboxd.token', $1::text, true) OFFSET 0) t
