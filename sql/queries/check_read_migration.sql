-- The newest migration that was applied; no row's worth (NULL) before the first.
-- Parameters: none. Locks: ACCESS SHARE on the history table, which only a migration writes.
SELECT max(version)::text AS version FROM outboxd.refinery_schema_history
