-- Ends readings of audiences that nobody waits for any more: their instance died, or gave up on them and could not end
-- them itself. Whoever waits for one has given up long before.
-- Interleavings: a reading that is over meanwhile is idle, and its backend ends anyway.
-- Locks: none. Index: none.
SELECT a.pid, pg_terminate_backend(a.pid) AS is_told FROM pg_stat_activity a
 WHERE a.usename = session_user AND a.datname = current_database() AND a.pid <> pg_backend_pid()
   AND starts_with(a.query, '-- An audience, read by a session that does nothing else')
   AND a.query_start < clock_timestamp() - (SELECT s.audience_time_max FROM outboxd.setting s) - interval '15 s'
