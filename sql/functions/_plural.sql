-- `1 dead letter`, `2 dead letters`: how many of what, for texts that people read.
CREATE OR REPLACE FUNCTION outboxd._plural(n bigint, noun text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT n || ' ' || noun || CASE WHEN n = 1 THEN '' ELSE 's' END $$;
