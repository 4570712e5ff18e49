-- Terminates sessions that go on reading an audience long after its time: whoever waited for them has died, or could not
-- end them. They are known by their mark (src/store/audience.rs) and a login that may act for the daemon, which need not be
-- ours: it may have been changed since. is_told: false, we may not end it. Without pg_read_all_stats those of other logins
-- are not seen.
-- Interleavings: one that ends just now is not there any more, or is told twice. A stranger who marks himself is no member of
-- outboxd_service.
-- Parameters: none. Locks: none. Index: none.
SELECT a.pid, a.usename::text AS login,
       CASE WHEN CASE WHEN t.rolsuper THEN me.rolsuper
                      ELSE pg_has_role(a.usesysid, 'USAGE') OR pg_has_role('pg_signal_backend', 'USAGE') END
            THEN pg_terminate_backend(a.pid) ELSE false END AS is_told
  FROM pg_stat_activity a JOIN pg_roles t ON t.oid = a.usesysid JOIN pg_roles me ON me.rolname = current_user
 WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
   AND (a.usename = session_user OR pg_has_role(a.usesysid, (SELECT r.oid FROM pg_roles r WHERE r.rolname = 'outboxd_service'), 'MEMBER'))
   AND EXISTS (SELECT FROM pg_locks m WHERE m.pid = a.pid AND m.locktype = 'advisory' AND m.objsubid = 2 AND m.classid = 1869968482)
   AND a.xact_start < clock_timestamp() - (SELECT s.audience_time_max FROM outboxd.setting s) - interval '15 s'
