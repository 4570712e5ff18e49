-- The origin of a URL that came from a row, as readers see it: of its host the ends, as the host may be the recipient.
-- Its names are bound when it is created, so it needs no search_path and vanishes into the query.
-- src/server/api/redact.rs does the same for tokens without `payloads`.
CREATE OR REPLACE FUNCTION outboxd._masked_origin(text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN $1 ~ '^[a-z]+://'
            THEN substring($1 FROM '^[a-z]+://')
                 || outboxd._masked(regexp_replace(regexp_replace($1, '^[a-z]+://', ''), ':[0-9]+$', ''))
                 || coalesce(substring($1 FROM ':[0-9]+$'), '')
            ELSE $1 END;
