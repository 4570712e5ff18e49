-- Appends the events of a topic to its stream again, from a time on.
-- $1 token, under whose name it is audited · $2 topic · $3 since when, a time as text
-- Locks and indexes: those of the function.
SELECT outboxd.replay_events($2::text, $3::text::timestamptz) FROM (SELECT set_config('outboxd.token', $1::text, true) OFFSET 0) t
