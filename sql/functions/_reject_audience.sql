-- Says why outboxd_audience cannot read an audience, as far as the catalogue tells; returns if nothing speaks against it.
-- What only a run finds, such as rights that a function needs inside, the run tells.
--
-- It runs with the owner's rights and names objects of others. So it looks at rows of the catalogue alone: a plan would
-- fold constants and inline functions, and that is to run them. Nothing of it is locked.
CREATE OR REPLACE FUNCTION outboxd._reject_audience(what text, audience text) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    bare    text := regexp_replace(_reject_audience.audience, '[[:space:]]*[(].*$', '');
    names   text[];
    nsp     oid;
    rel     oid;
    kind    text;
    called  oid;
    holder  oid;
    bad     text;
    code    text := 'invalid_parameter_value';
    hint    text;
BEGIN
    IF to_regrole('outboxd_audience') IS NULL THEN
        RAISE EXCEPTION '%: the audience cannot be read: audiences are read as outboxd_audience, and that role is missing', what
            USING ERRCODE = 'undefined_object', HINT = 'Let a DBA run sql/roles.sql, then `outboxd migrate` again.';
    END IF;
    BEGIN
        names := parse_ident(bare);
    EXCEPTION WHEN invalid_parameter_value THEN
        names := NULL;
    END;
    -- What belongs to a session is not there for the one that reads.
    SELECT n.oid INTO nsp FROM pg_namespace n
     WHERE cardinality(names) = 2 AND n.nspname = names[1] AND n.nspname !~ '^pg_(toast_)?temp(_|$)';
    IF bare = _reject_audience.audience THEN
        SELECT c.oid, c.relkind, c.reltype INTO rel, kind, holder FROM pg_class c
         WHERE c.relnamespace = nsp AND c.relname = names[2] AND c.relpersistence <> 't';
    END IF;
    IF rel IS NULL THEN
        SELECT p.oid, p.prokind, p.prorettype INTO called, kind, holder FROM pg_proc p
         WHERE p.pronamespace = nsp AND p.proname = names[2]
         ORDER BY p.prokind <> 'f', p.pronargs <> 0, p.pronargs <> 1 OR p.proargtypes[0] <> 'timestamptz'::regtype LIMIT 1;
    END IF;
    IF coalesce(rel, called) IS NULL THEN
        bad := format('there is no audience %L', _reject_audience.audience);
        code := 'undefined_table';
        hint := 'Name a view, a table or a function without arguments or with the slot (timestamptz), with its schema: app.quiz_audience.';
    ELSIF rel IS NOT NULL AND kind NOT IN ('r', 'v', 'm', 'f', 'p') OR called IS NOT NULL AND kind <> 'f' THEN
        bad := format('%s is no view, table or function', bare);
        code := 'wrong_object_type';
    ELSIF (SELECT p.pronargs > 1 OR p.pronargs = 1 AND p.proargtypes[0] <> 'timestamptz'::regtype FROM pg_proc p WHERE p.oid = called) THEN
        bad := format('the function %s wants other arguments', bare);
        code := 'undefined_function';
        hint := 'It may have none, or one: the slot (timestamptz).';
    ELSIF NOT has_schema_privilege('outboxd_audience', nsp, 'USAGE') THEN
        bad := format('outboxd_audience may not use the schema %I', names[1]);
        code := 'insufficient_privilege';
    ELSIF NOT has_function_privilege('outboxd_audience', called, 'EXECUTE') THEN
        bad := format('outboxd_audience may not execute %s', bare);
        code := 'insufficient_privilege';
    ELSE
        -- The columns it needs, as they are; a function's from its OUT arguments or from the type it returns.
        WITH RECURSIVE base AS (
            SELECT t.oid, t.typtype, t.typbasetype, t.typrelid FROM pg_type t WHERE t.oid = holder
            UNION ALL
            SELECT t.oid, t.typtype, t.typbasetype, t.typrelid FROM base b JOIN pg_type t ON b.typtype = 'd' AND t.oid = b.typbasetype
        ), had AS (
            SELECT a.attname::text AS name, a.atttypid AS type, a.attnum AS n FROM base b JOIN pg_attribute a ON a.attrelid = b.typrelid
             WHERE b.typtype = 'c' AND a.attnum > 0 AND NOT a.attisdropped
            UNION ALL
            SELECT u.name, u.type, 0 FROM pg_proc p, unnest(p.proargnames, p.proallargtypes, p.proargmodes) u(name, type, mode)
             WHERE p.oid = called AND p.prorettype = 'record'::regtype AND u.mode IN ('o', 'b', 't')
        ), typed AS (
            SELECT h.name, h.type AS own, h.n, t.oid, t.typtype, t.typbasetype, t.typcategory, t.typnamespace FROM had h JOIN pg_type t ON t.oid = h.type
            UNION ALL
            SELECT y.name, y.own, y.n, t.oid, t.typtype, t.typbasetype, t.typcategory, t.typnamespace
              FROM typed y JOIN pg_type t ON y.typtype = 'd' AND t.oid = y.typbasetype
        ), wanted AS (
            SELECT w.name, w.is_payload, y.own, y.n, y.oid IS NULL AS is_missing,
                   y.typtype = 'p' AND y.oid <> 'record'::regtype
                   OR w.is_payload AND y.typcategory <> 'S' AND y.oid <> 'jsonb'::regtype
                      AND NOT EXISTS (SELECT FROM pg_cast c WHERE c.castsource = y.oid AND c.casttarget = 'jsonb'::regtype) AS is_unfit,
                   EXISTS (SELECT FROM typed s JOIN pg_namespace m ON m.oid = s.typnamespace WHERE s.name = w.name AND m.nspname ~ '^pg_temp') AS is_own
              FROM (VALUES ('recipient', false), ('payload', true)) w(name, is_payload) LEFT JOIN typed y ON y.name = w.name AND y.typtype <> 'd'
        )
        SELECT x.bad, x.code, x.hint INTO bad, code, hint FROM (
            SELECT 1, format('%s has no column %s', bare, w.name), 'undefined_column', 'It needs the columns recipient (text) and payload (jsonb).'
              FROM wanted w WHERE w.is_missing
            UNION ALL
            SELECT 2, format('outboxd_audience may not read the column %s of %s', w.name, bare), 'insufficient_privilege', NULL
              FROM wanted w WHERE NOT w.is_missing AND NOT has_column_privilege('outboxd_audience', rel, w.n::smallint, 'SELECT')
            UNION ALL
            SELECT 3, format('%s.%s is of the type %s, which belongs to a session', bare, w.name, format_type(w.own, NULL)), 'undefined_table', NULL
              FROM wanted w WHERE w.is_own
            UNION ALL
            SELECT 4, format('%s.%s is of the type %s', bare, w.name, format_type(w.own, NULL)), 'datatype_mismatch',
                   CASE WHEN w.is_payload THEN 'payload is jsonb, or what casts to it: json, text.' ELSE 'recipient is text, or what casts to it.' END
              FROM wanted w WHERE w.is_unfit
        ) x(n, bad, code, hint) ORDER BY x.n, x.bad DESC LIMIT 1;
    END IF;
    IF bad IS NOT NULL THEN
        RAISE EXCEPTION '%: the audience cannot be read: %', what, bad USING ERRCODE = code,
            HINT = CASE WHEN code = 'insufficient_privilege'
                        THEN format('GRANT USAGE ON SCHEMA %I TO outboxd_audience; GRANT %s %s TO outboxd_audience;', names[1],
                                    CASE WHEN rel IS NULL THEN 'EXECUTE ON FUNCTION' ELSE 'SELECT ON' END, bare)
                        ELSE coalesce(hint, 'It needs the columns recipient (text) and payload (jsonb).') END;
    END IF;
END $$;
