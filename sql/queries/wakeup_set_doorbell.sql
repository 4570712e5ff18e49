-- Says until when nobody needs to ring: ahead of now while busy, now while dozing or asleep and listening.
-- Ahead is 5 s more than asked for: notify() takes less than that for now, and leaves the rest to _ring().
-- $1 ms ahead
-- Locks: none worth the name: a sequence is outside MVCC.
-- Rounded down: half a millisecond ahead of now would read as busy, and a commit within it would not ring.
SELECT setval('outboxd.doorbell', floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint + CASE WHEN $1::bigint > 0 THEN $1::bigint + 5000 ELSE 0 END)
