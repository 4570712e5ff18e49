-- The newest migration that was applied; 0 before the first.
-- Parameters: none. Locks: ACCESS SHARE on the history table, which only a migration writes. Index: its primary key.
SELECT coalesce(max(h.version), 0)::bigint AS version FROM outboxd.refinery_schema_history h
