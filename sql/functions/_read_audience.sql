-- The audience of a schedule, at most rows_max of it. It belongs to outboxd_audience and runs with that role's rights
-- only; unlike after SET ROLE, what it calls cannot change the role back. grants.sql hands it over; where the role
-- is missing it refuses.
-- `audience` is a relation, or a function without arguments or with one: the slot. Names are looked up, never pasted.
-- What belongs to a session is no audience: behind a pooler it would be whoever shares it.
CREATE OR REPLACE FUNCTION outboxd._read_audience(audience text, slot timestamptz, rows_max bigint)
RETURNS TABLE (recipient text, payload jsonb)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    bare   text := regexp_replace(_read_audience.audience, '[[:space:]]*[(].*$', '');
    source text;
BEGIN
    IF current_user <> 'outboxd_audience' THEN
        RAISE EXCEPTION 'audiences are read as outboxd_audience, and that role is missing' USING ERRCODE = 'undefined_object',
            HINT = 'Let a DBA run sql/roles.sql, then `outboxd migrate` again.';
    END IF;
    IF bare = _read_audience.audience THEN
        source := (SELECT c.oid::regclass::text FROM pg_class c WHERE c.oid = to_regclass(bare) AND c.relpersistence <> 't');
    END IF;
    IF source IS NULL THEN
        SELECT p.oid::regproc::text || CASE p.pronargs WHEN 0 THEN '()' ELSE '($1)' END INTO source
          FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
         WHERE p.oid IN (to_regprocedure(bare || '()'), to_regprocedure(bare || '(timestamptz)')) AND n.nspname !~ '^pg_temp'
         ORDER BY p.pronargs LIMIT 1;
    END IF;
    IF source IS NULL THEN
        RAISE EXCEPTION 'there is no audience %', quote_literal(_read_audience.audience) USING ERRCODE = 'undefined_table',
            HINT = 'Name a view, a table or a function without arguments or with the slot (timestamptz), with its schema: app.quiz_audience.';
    END IF;
    RETURN QUERY EXECUTE format('SELECT a.recipient::text, a.payload::jsonb FROM %s a LIMIT $2', source)
        USING _read_audience.slot, _read_audience.rows_max;
END $$;
