-- Tries a held channel with one call.
-- $1 token, under whose name it is audited · $2 channel · $3 origin, empty: the channel as a whole
-- Locks and indexes: those of the function.
SELECT outboxd.probe_channel($2::text, $3::text) FROM (SELECT set_config('outboxd.token', $1::text, true) OFFSET 0) t
