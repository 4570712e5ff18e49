-- The schema `outboxd` as lines of text, the same on every supported server version. View and function bodies are
-- left out: they stand in sql/, and servers print them differently.
WITH relation AS (
    SELECT c.oid, c.relname::text AS name, c.relkind, c.reloptions, c.relacl, c.relowner
      FROM pg_class c WHERE c.relnamespace = 'outboxd'::regnamespace AND c.relkind IN ('r', 'v', 'S')
       AND c.relname <> 'refinery_schema_history'
), who AS (
    SELECT oid, rolname::text AS name FROM pg_roles UNION ALL SELECT 0, 'PUBLIC'
), line(section, subject, n, text) AS (
    SELECT 1, t.typname::text, 0, 'TYPE ' || t.typname || ' ' || string_agg(e.enumlabel, ' ' ORDER BY e.enumsortorder)
      FROM pg_type t JOIN pg_enum e ON e.enumtypid = t.oid WHERE t.typnamespace = 'outboxd'::regnamespace GROUP BY t.typname
    UNION ALL
    SELECT 2, r.name, 0, CASE r.relkind WHEN 'r' THEN 'TABLE ' WHEN 'v' THEN 'VIEW ' ELSE 'SEQUENCE ' END || r.name
           || coalesce(' WITH (' || array_to_string(r.reloptions, ', ') || ')', '')
      FROM relation r
    UNION ALL
    SELECT 2, r.name, a.attnum, '    ' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
           || CASE WHEN a.attnotnull THEN ' NOT NULL' ELSE '' END
           || CASE a.attidentity WHEN 'a' THEN ' IDENTITY ALWAYS' WHEN 'd' THEN ' IDENTITY BY DEFAULT' ELSE '' END
           || CASE WHEN a.attgenerated = 's' THEN ' GENERATED ' WHEN d.oid IS NOT NULL THEN ' DEFAULT ' ELSE '' END
           || coalesce(pg_get_expr(d.adbin, d.adrelid), '')
      FROM relation r JOIN pg_attribute a ON a.attrelid = r.oid AND a.attnum > 0 AND NOT a.attisdropped
      LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
     WHERE r.relkind IN ('r', 'v')
    UNION ALL
    SELECT 2, r.name, 2000 + row_number() OVER (PARTITION BY r.oid ORDER BY c.conname), '    CONSTRAINT ' || c.conname || ' ' || pg_get_constraintdef(c.oid)
      FROM relation r JOIN pg_constraint c ON c.conrelid = r.oid WHERE c.contype IN ('c', 'p', 'u', 'f', 'x')
    UNION ALL
    SELECT 2, r.name, 3000 + row_number() OVER (PARTITION BY r.oid ORDER BY i.indexrelid::regclass::text), '    ' || pg_get_indexdef(i.indexrelid)
      FROM relation r JOIN pg_index i ON i.indrelid = r.oid
    UNION ALL
    SELECT 2, r.name, 4000, '    ' || pg_get_triggerdef(t.oid) FROM relation r JOIN pg_trigger t ON t.tgrelid = r.oid WHERE NOT t.tgisinternal
    UNION ALL
    SELECT 2, r.name, 5000 + row_number() OVER (PARTITION BY r.oid ORDER BY w.name), '    GRANT ' || string_agg(lower(x.privilege_type), ', ' ORDER BY x.privilege_type) || ' TO ' || w.name
      FROM relation r CROSS JOIN LATERAL aclexplode(r.relacl) x JOIN who w ON w.oid = x.grantee
     WHERE x.grantee <> r.relowner GROUP BY r.oid, r.name, w.name
    UNION ALL
    SELECT 2, r.name, 6000 + a.attnum, '    GRANT ' || lower(x.privilege_type) || ' (' || a.attname || ') TO ' || w.name
      FROM relation r JOIN pg_attribute a ON a.attrelid = r.oid AND a.attacl IS NOT NULL
     CROSS JOIN LATERAL aclexplode(a.attacl) x JOIN who w ON w.oid = x.grantee
    UNION ALL
    SELECT 2, r.name, 4500 + row_number() OVER (PARTITION BY r.oid ORDER BY p.polname), '    POLICY ' || p.polname || CASE WHEN p.polpermissive THEN '' ELSE ' RESTRICTIVE' END
           || ' USING ' || pg_get_expr(p.polqual, p.polrelid) || ' CHECK ' || pg_get_expr(p.polwithcheck, p.polrelid)
      FROM relation r JOIN pg_policy p ON p.polrelid = r.oid
    UNION ALL
    SELECT 3, p.proname::text, 0, 'FUNCTION ' || p.proname || '(' || pg_get_function_arguments(p.oid) || ') RETURNS ' || pg_get_function_result(p.oid)
           || ' LANGUAGE ' || l.lanname || CASE p.provolatile WHEN 'i' THEN ' IMMUTABLE' WHEN 's' THEN ' STABLE' ELSE '' END
           || CASE WHEN p.proisstrict THEN ' STRICT' ELSE '' END || CASE WHEN p.prosecdef THEN ' SECURITY DEFINER' ELSE '' END
           || coalesce(' SET ' || array_to_string(p.proconfig, ', '), '')
           || coalesce((SELECT ' GRANT TO ' || string_agg(w.name, ', ' ORDER BY w.name) FROM aclexplode(p.proacl) x JOIN who w ON w.oid = x.grantee
                         WHERE x.grantee <> p.proowner), '')
      FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang WHERE p.pronamespace = 'outboxd'::regnamespace
    UNION ALL
    SELECT 4, 'schema', 0, 'GRANT ' || string_agg(lower(x.privilege_type), ', ' ORDER BY x.privilege_type) || ' ON SCHEMA outboxd TO ' || w.name
      FROM pg_namespace s CROSS JOIN LATERAL aclexplode(s.nspacl) x JOIN who w ON w.oid = x.grantee
     WHERE s.nspname = 'outboxd' AND x.grantee <> s.nspowner GROUP BY w.name
)
SELECT text FROM line ORDER BY section, subject COLLATE "C", n, text COLLATE "C"
