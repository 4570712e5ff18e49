-- Holds a channel.
-- $1 token, under whose name it is audited · $2 channel
-- Locks and indexes: those of the function.
SELECT outboxd.pause_channel($2::text) FROM (SELECT set_config('outboxd.token', $1::text, true) OFFSET 0) t
