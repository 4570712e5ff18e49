-- An error as readers see it: up to its first colon, as what follows may quote a row or a provider's answer. What kept a
-- connection from being made, or ended it, is told whole.
-- Its names are bound when it is created, so it needs no search_path and vanishes into the query.
-- src/server/api/redact.rs does the same for tokens without `payloads`.
CREATE OR REPLACE FUNCTION outboxd._cause(text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN starts_with($1, 'connect: ') OR starts_with($1, 'no answer after the request went out: ') THEN $1
            ELSE left(split_part($1, ':', 1), 120) END;
