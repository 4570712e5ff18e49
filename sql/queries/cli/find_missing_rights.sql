-- What of the schema this login may not use although the daemon does, by name; the first five, and how many in all.
-- Parameters: none. Locks: none beyond catalog reads. Index: the catalog's. Needs no privilege: it asks the catalog.
SELECT count(*) AS missing, array_to_string((array_agg(m.name ORDER BY m.name))[1:5], ', ') AS names
FROM (
    SELECT c.relname::text AS name
      FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
     WHERE n.nspname = 'outboxd'
       AND CASE WHEN c.relkind = 'S'
                THEN NOT (has_sequence_privilege(c.oid, 'USAGE') AND has_sequence_privilege(c.oid, 'SELECT')
                          AND has_sequence_privilege(c.oid, 'UPDATE'))
                WHEN c.relkind = 'v' THEN NOT has_table_privilege(c.oid, 'SELECT')
                WHEN c.relkind = 'r'
                THEN NOT (has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'INSERT')
                          AND has_table_privilege(c.oid, 'UPDATE') AND has_table_privilege(c.oid, 'DELETE'))
           END
    UNION ALL
    SELECT p.proname::text
      FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
     WHERE n.nspname = 'outboxd' AND NOT has_function_privilege(p.oid, 'EXECUTE')
    UNION ALL
    SELECT 'the schema itself' FROM pg_catalog.pg_namespace n
     WHERE n.nspname = 'outboxd' AND NOT has_schema_privilege(n.oid, 'USAGE')
) AS m
