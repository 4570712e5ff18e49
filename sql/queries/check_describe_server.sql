-- Which server this is, who we are on it, and whether our schema is there.
-- Parameters: none. Locks: none beyond catalog reads. Needs no privilege: it asks the catalog about our tables,
-- because naming them would be an error where they do not exist or may not be seen.
SELECT current_setting('server_version') AS version,
       current_setting('server_version_num') AS version_num,
       current_database() AS database_name,
       current_user AS user_name,
       (SELECT s.version FROM pg_catalog.pg_stat_ssl s WHERE s.pid = pg_backend_pid() AND s.ssl) AS tls_version,
       n.oid IS NOT NULL AS schema_exists,
       c.oid IS NOT NULL AS history_exists,
       coalesce(has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT'), false)
           AS history_readable
FROM (VALUES ('outboxd', 'refinery_schema_history')) AS wanted (schema_name, table_name)
LEFT JOIN pg_catalog.pg_namespace n ON n.nspname = wanted.schema_name
LEFT JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = wanted.table_name
