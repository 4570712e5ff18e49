-- `1 dead letter`, `2 dead letters`: how many of what, for texts that people read.
-- Its names are bound when it is created, so it needs no search_path and vanishes into the query.
CREATE OR REPLACE FUNCTION outboxd._plural(n bigint, noun text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN n || ' ' || noun || CASE WHEN n = 1 THEN '' ELSE 's' END;
