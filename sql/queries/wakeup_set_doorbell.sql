-- Says until when nobody needs to ring: ahead of now while awake, now while asleep and listening.
-- $1 ms ahead
-- Locks: none worth the name: a sequence is outside MVCC.
SELECT setval('outboxd.doorbell', (extract(epoch FROM clock_timestamp()) * 1000)::bigint + $1::bigint)
