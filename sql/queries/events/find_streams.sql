-- The topics that have a stream, so many after this one in the order of their names.
-- $1 after this one · $2 topics at most
-- Locks: none. Index: event_stream_pkey.
SELECT s.topic FROM outboxd.event_stream s WHERE s.topic > $1::text ORDER BY s.topic LIMIT $2::int
