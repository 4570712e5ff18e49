-- An instance signs off; it holds nothing any more.
-- Interleavings: a row that was removed, or whose number is somebody else's by now, is left alone.
-- $1 instance · $2 registered at
-- Locks: its own row. Index: instance_pkey.
UPDATE outboxd.instance SET stopped_at = clock_timestamp(), in_flight = 0 WHERE id = $1::int AND started_at = $2::timestamptz AND stopped_at IS NULL
