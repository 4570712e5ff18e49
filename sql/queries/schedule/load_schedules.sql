-- Schedules that are due to be planned: nobody has worked out their next slot yet, or it is within their lead; a paused
-- one's has come. Those that a copy brought wait (origin). What would have expired is not caught up with.
-- $1 schedules at most
-- Locks: none. Index: none, the table is small.
SELECT s.id, s.version, s.cron, s.timezone, (extract(epoch FROM s.lead) * 1000)::bigint AS lead_ms,
       (extract(epoch FROM least(s.catch_up, s.expires_after)) * 1000)::bigint AS catch_up_ms, s.paused_at IS NOT NULL AS is_paused, s.changed_at, s.next_slot, clock_timestamp() AS now
  FROM outboxd.schedule s
 WHERE s.error IS NULL AND s.id > (SELECT o.schedules_through FROM outboxd.origin o)
   AND (s.next_slot IS NULL OR s.next_slot - CASE WHEN s.paused_at IS NULL THEN s.lead ELSE '0' END <= clock_timestamp())
 ORDER BY s.next_slot NULLS FIRST LIMIT $1::int
