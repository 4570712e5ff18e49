-- Whether the bell is as it was set: up, or set further by another instance that is busy. Else a writer who read the bell of
-- before, which was old, took it down just after it was set.
-- $1 what it was set to
-- Locks: none.
SELECT is_called OR last_value > $1::bigint FROM outboxd.doorbell
