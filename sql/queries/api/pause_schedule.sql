-- Keeps a schedule from running. Gives how many prepared notifications were canceled.
-- $1 token, under whose name it is audited · $2 name
-- Locks and indexes: those of the function.
SELECT outboxd.pause_schedule($2::text) FROM (SELECT set_config('outboxd.token', $1::text, true) OFFSET 0) t
