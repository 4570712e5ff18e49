-- Instances without a heartbeat for their TTL that have not signed off, and those that signed off in the last hour but
-- may still hold rows. Never ourselves. An instance is dead only if our own heartbeats have gone through for its whole
-- TTL: after an outage of Postgres everybody's last one is old, and who comes back first must not take the others for
-- dead. What one published died with it if its queue was in its process, or may have been for want of Redis or of others' routes.
-- $1 our own number · $2 how long our heartbeats have gone through without a gap, in ms
-- Locks: none. Index: none, the table is small.
SELECT i.id, i.queue_kind = 'memory' OR i.fallback_since IS NOT NULL OR i.keeps_its_own AS memory, i.heartbeat_at, i.host,
       i.stopped_at IS NULL AND i.heartbeat_at > clock_timestamp() - interval '10 min' AS died_lately
  FROM outboxd.instance i
 WHERE i.id <> $1::int
   AND ((i.stopped_at IS NULL AND i.heartbeat_at < clock_timestamp() - i.ttl AND i.ttl <= $2::bigint * interval '1 ms')
        OR i.stopped_at > clock_timestamp() - interval '1 hour')
