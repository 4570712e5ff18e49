-- Whether a schedule is due to be planned, or a run is under way or has rows left to be cleared: asked each second, so
-- that a pass without work is one statement.
-- Parameters: none
-- Locks: none. Index: schedule_run_open; the table of schedules is small.
SELECT EXISTS (SELECT FROM outboxd.schedule s
                WHERE s.error IS NULL
                  AND (s.next_slot IS NULL OR s.next_slot - CASE WHEN s.paused_at IS NULL THEN s.lead ELSE '0' END <= clock_timestamp()))
    OR EXISTS (SELECT FROM outboxd.schedule_run r WHERE r.ended_at IS NULL OR r.staged IS NOT NULL)
