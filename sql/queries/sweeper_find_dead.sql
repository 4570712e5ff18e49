-- Instances without a heartbeat for their TTL that have not signed off, and those that signed off in the last hour but
-- may still hold rows.
-- Locks: none. Index: none, the table is small.
SELECT i.id, i.queue_kind = 'memory' AS memory FROM outboxd.instance i
 WHERE (i.stopped_at IS NULL AND i.heartbeat_at < clock_timestamp() - i.ttl)
    OR i.stopped_at > clock_timestamp() - interval '1 hour'
