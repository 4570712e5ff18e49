-- Stands in for everything that SQL of ours could name without a schema: functions, aggregates, operators, types and
-- relations of pg_catalog, and nearer matches for what is polymorphic there. Whatever runs draws from evil.trap, which
-- no rollback undoes, and fails. Needs the schema evil, and the schema outboxd with our types.
CREATE SEQUENCE evil.trap;
GRANT USAGE ON SCHEMA evil TO PUBLIC;
GRANT ALL ON SEQUENCE evil.trap TO PUBLIC;

CREATE VIEW evil.enums AS
SELECT t.oid::regtype AS e FROM pg_type t WHERE t.typtype = 'e' AND t.typnamespace = 'outboxd'::regnamespace;

CREATE FUNCTION evil.spring(what text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_catalog.nextval('evil.trap');
    RAISE EXCEPTION 'planted % ran as %', what, current_user;
END $$;
CREATE FUNCTION evil.is_safe(what text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM evil.spring(what);
    RETURN false;
END $$;

CREATE FUNCTION evil.plant(name text, args text, result text) RETURNS void LANGUAGE plpgsql AS $plant$
BEGIN
    EXECUTE format('CREATE FUNCTION evil.%I(%s) RETURNS %s LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.spring(%L); END $$',
                   name, args, result, format('%s(%s)', name, args));
EXCEPTION WHEN duplicate_function OR feature_not_supported OR invalid_function_definition OR undefined_object OR syntax_error THEN
    NULL; -- planted already, or nothing that SQL can define
END $plant$;

-- Functions with the very signature.
DO $$
DECLARE
    it record;
BEGIN
    FOR it IN SELECT p.proname, pg_get_function_identity_arguments(p.oid) AS args, pg_get_function_result(p.oid) AS result
                FROM pg_proc p
               WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind = 'f'
                 AND NOT EXISTS (SELECT FROM unnest(p.proargtypes) t WHERE t::regtype::text IN ('internal', 'cstring', '"any"'))
                 AND p.prorettype::regtype::text NOT IN ('internal', 'cstring', 'trigger', 'event_trigger', 'language_handler',
                                                        'fdw_handler', 'index_am_handler', 'table_am_handler', 'tsm_handler')
    LOOP
        PERFORM evil.plant(it.proname, it.args, it.result);
    END LOOP;
END $$;

-- Nearer matches than pg_catalog's polymorphic and variadic ones: these win even behind it.
DO $$
DECLARE
    element text;
    name    text;
    args    text;
BEGIN
    FOREACH element IN ARRAY ARRAY['bigint', 'integer', 'smallint', 'text', 'boolean', 'timestamptz', 'jsonb', 'interval', 'tid']
                             || (SELECT array_agg(m.e::text) FROM evil.enums m) LOOP
        PERFORM evil.plant('unnest', element || '[]', 'SETOF ' || element);
        PERFORM evil.plant('cardinality', element || '[]', 'integer');
        PERFORM evil.plant('array_position', element || '[], ' || element, 'integer');
        PERFORM evil.plant('array_to_string', element || '[], text', 'text');
        PERFORM evil.plant('array_length', element || '[], integer', 'integer');
        PERFORM evil.plant('width_bucket', element || ', ' || element || '[]', 'integer');
        PERFORM evil.plant('to_jsonb', element, 'jsonb');
        PERFORM evil.plant('quote_literal', element, 'text');
        PERFORM evil.plant('quote_nullable', element, 'text');
        PERFORM evil.plant('enum_out', element, 'text');
    END LOOP;
    FOREACH name IN ARRAY ARRAY['format', 'concat', 'concat_ws', 'jsonb_build_object', 'jsonb_build_array', 'json_build_object'] LOOP
        FOREACH element IN ARRAY ARRAY['text', 'bigint', 'integer', 'jsonb', 'timestamptz'] LOOP
            args := 'text';
            FOR n IN 1..5 LOOP
                args := args || ', ' || element;
                PERFORM evil.plant(name, args, CASE WHEN name LIKE 'json%' THEN 'jsonb' ELSE 'text' END);
            END LOOP;
        END LOOP;
    END LOOP;
    PERFORM evil.plant('row_to_json', 'record', 'json');
    PERFORM evil.plant('to_regclass', 'text', 'regclass');
END $$;

-- Aggregates.
CREATE FUNCTION evil.gather(bigint) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.spring('count(*)'); END $$;
CREATE AGGREGATE evil.count(*) (SFUNC = evil.gather, STYPE = bigint, INITCOND = '0');
DO $$
DECLARE
    element text;
    name    text;
BEGIN
    FOREACH element IN ARRAY ARRAY['bigint', 'integer', 'smallint', 'text', 'boolean', 'timestamptz', 'jsonb', 'interval', 'numeric', 'tid'] LOOP
        EXECUTE format('CREATE FUNCTION evil.gather(%1$s, %1$s) RETURNS %1$s LANGUAGE plpgsql AS $g$ BEGIN PERFORM evil.spring(''aggregate''); END $g$', element);
        EXECUTE format('CREATE FUNCTION evil.gather_all(%1$s[], %1$s) RETURNS %1$s[] LANGUAGE plpgsql AS $g$ BEGIN PERFORM evil.spring(''array_agg''); END $g$', element);
        FOREACH name IN ARRAY ARRAY['min', 'max', 'sum', 'count', 'bool_or', 'bool_and'] LOOP
            EXECUTE format('CREATE AGGREGATE evil.%I(%s) (SFUNC = evil.gather, STYPE = %s)', name, element, element);
        END LOOP;
        EXECUTE format('CREATE AGGREGATE evil.array_agg(%1$s) (SFUNC = evil.gather_all, STYPE = %1$s[])', element);
    END LOOP;
END $$;

-- Operators, and nearer matches for the polymorphic ones.
DO $$
DECLARE
    it record;
BEGIN
    FOR it IN SELECT o.oprname AS name, nullif(o.oprleft, 0)::regtype::text AS l, o.oprright::regtype::text AS r, o.oprresult::regtype::text AS result
                FROM pg_operator o WHERE o.oprnamespace = 'pg_catalog'::regnamespace
              UNION
              SELECT n, t, t, 'boolean' FROM unnest(ARRAY['=', '<>', '<', '>', '<=', '>=', '@>', '<@', '&&']) n,
                     (SELECT m.e::text FROM evil.enums m UNION SELECT unnest(ARRAY['bigint[]', 'integer[]', 'text[]'])) t(t)
              UNION
              SELECT '||', l, r, 'text' FROM unnest(ARRAY['text', 'bigint', 'integer']) l, unnest(ARRAY['text', 'bigint', 'integer']) r
               WHERE 'text' IN (l, r)
    LOOP
        BEGIN
            EXECUTE format('CREATE FUNCTION evil.operate(%s) RETURNS %s LANGUAGE plpgsql AS $o$ BEGIN PERFORM evil.spring(%L); END $o$',
                           concat_ws(', ', it.l, it.r), it.result, format('%s %s %s', it.l, it.name, it.r));
        EXCEPTION WHEN duplicate_function OR invalid_function_definition THEN NULL;
        END;
        BEGIN
            EXECUTE format('CREATE OPERATOR evil.%s (%s RIGHTARG = %s, FUNCTION = evil.operate)', it.name,
                           'LEFTARG = ' || it.l || ',', it.r);
        EXCEPTION WHEN OTHERS THEN NULL; -- two operators of one signature cannot differ in their results here
        END;
    END LOOP;
END $$;

-- Types: whoever casts to one is caught. Tables and views of the catalog, and ours.
DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['text', 'jsonb', 'json', 'timestamptz', 'timestamp', 'date', 'interval', 'bool', 'int2', 'int4', 'int8', 'numeric',
                                'float8', 'oid', 'name', 'tid', 'uuid', 'regclass', 'regproc', 'regprocedure', 'regrole', 'regnamespace'] LOOP
        EXECUTE format('CREATE DOMAIN evil.%1$I AS pg_catalog.%1$I CHECK (evil.is_safe(%1$L))', name);
    END LOOP;
    FOR name IN SELECT c.relname FROM pg_class c
                 WHERE c.relnamespace = 'pg_catalog'::regnamespace AND c.relkind IN ('r', 'v') AND c.relname !~ 'statistic|^pg_attribute$|^pg_stats' LOOP
        EXECUTE format('CREATE VIEW evil.%1$I AS SELECT c.* FROM pg_catalog.%1$I c WHERE evil.is_safe(%1$L)', name);
        EXECUTE format('GRANT SELECT ON evil.%I TO PUBLIC', name);
    END LOOP;
    FOR name IN SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'outboxd'::regnamespace AND c.relkind = 'r' LOOP
        EXECUTE format('CREATE VIEW evil.%1$I AS SELECT c.* FROM outboxd.%1$I c WHERE evil.is_safe(%1$L)', name);
        EXECUTE format('GRANT SELECT ON evil.%I TO PUBLIC', name);
    END LOOP;
END $$;
