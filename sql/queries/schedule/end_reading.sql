-- Ends the backend that reads an audience, whatever runs in it: a cancel can be swallowed, this cannot. Waits up to 5 s
-- for its end; false: it goes on. No row: it is gone, or was never there.
-- Interleavings: a backend that serves somebody else by now, as behind a pooler, has another statement or another start.
-- $1 backend as it told: its number and when it was started
-- Locks: none. Index: none.
SELECT pg_terminate_backend(a.pid, 5000) AS has_ended FROM pg_stat_activity a
 WHERE a.usename = session_user AND a.pid || ' ' || extract(epoch FROM a.backend_start) = $1::text
   AND starts_with(a.query, '-- An audience, read by a session that does nothing else')
