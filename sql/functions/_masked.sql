-- A recipient or a key as readers see it: its first and last two characters; one with fewer than nine shows nothing.
-- Its names are bound when it is created, so it needs no search_path and vanishes into the query.
-- src/server/api/redact.rs does the same for tokens without `payloads`.
CREATE OR REPLACE FUNCTION outboxd._masked(text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN length($1) < 9 THEN '****' ELSE left($1, 2) || '****' || right($1, 2) END;
