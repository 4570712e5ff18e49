-- Which server this is, who we are on it, what we may do, and whether our schema is there.
-- Parameters: none. Locks: none beyond catalog reads. Index: the catalog's. Needs no privilege: it asks the catalog
-- about our tables, because naming them would be an error where they do not exist or may not be seen.
SELECT current_setting('server_version') AS version,
       current_setting('server_version_num') AS version_num,
       current_database() AS database_name,
       current_user AS user_name,
       (SELECT s.version FROM pg_catalog.pg_stat_ssl s WHERE s.pid = pg_backend_pid() AND s.ssl) AS tls_version,
       pg_is_in_recovery() AS is_read_only,
       (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS clock_ms,
       has_database_privilege(current_database(), 'CREATE') AS may_create_schema,
       n.oid IS NOT NULL AS schema_exists,
       pg_get_userbyid(n.nspowner) AS schema_owner,
       coalesce(pg_has_role(n.nspowner, 'USAGE'), false) AS owns_schema,
       c.oid IS NOT NULL AS history_exists,
       coalesce(has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT'), false)
           AS history_readable,
       (SELECT string_agg(r.name, ', ' ORDER BY r.name)
          FROM unnest(ARRAY['outboxd_app', 'outboxd_operator', 'outboxd_reader', 'outboxd_service', 'outboxd_audience']) r (name)
         WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_roles p WHERE p.rolname = r.name)) AS roles_missing,
       (SELECT pg_has_role(p.oid, 'MEMBER') FROM pg_catalog.pg_roles p WHERE p.rolname = 'outboxd_service')
           AS is_service,
       EXISTS (SELECT FROM pg_catalog.pg_roles p WHERE pg_has_role(p.oid, 'MEMBER')
                  AND p.rolname IN ('outboxd_app', 'outboxd_operator', 'outboxd_reader')) AS is_of_others,
       (SELECT pg_has_role(p.oid, 'USAGE') FROM pg_catalog.pg_roles p WHERE p.rolname = 'outboxd_service')
           AS inherits_service
FROM (VALUES ('outboxd', 'refinery_schema_history')) AS wanted (schema_name, table_name)
LEFT JOIN pg_catalog.pg_namespace n ON n.nspname = wanted.schema_name
LEFT JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = wanted.table_name
