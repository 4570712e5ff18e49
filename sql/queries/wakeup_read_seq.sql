-- The highest outbox.seq drawn so far. Read it before the holders: whoever drew one up to here and has not
-- committed is among them.
-- Locks: none.
SELECT CASE WHEN s.is_called THEN s.last_value ELSE 0 END FROM outboxd.notification_log_id_seq s
