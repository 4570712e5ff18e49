-- Says until when nobody needs to ring: ahead of now while busy, now while dozing or asleep and listening. Busy, the bell is
-- also taken down (`is_called` false, so that it reads NULL): a writer sees at a glance that it need not ring.
-- $1 ms ahead
-- Locks: none worth the name: a sequence is outside MVCC.
-- Rounded down: half a millisecond ahead of now would read as busy, and a commit within it would not ring.
SELECT setval('outboxd.doorbell', floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint + $1::bigint, $1::bigint = 0)
