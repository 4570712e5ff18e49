-- Why a notification waits, if it does.
-- $1 id
-- Locks: none. Index: those of the function.
SELECT w.reason, w.explanation, w.action, w.since, w.until, w.behind, w.place, w.channel, w.origin, w.worker, w.paused_by
  FROM outboxd.why($1::bigint) w
