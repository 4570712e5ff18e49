-- Where an origin stands among others that are equal but for it: a keyed hash. Lists are paged by it, so that whoever may
-- not see the origin cannot find it out by asking what comes after a guess.
-- Locks: none. Index: none: a table of one row.
CREATE OR REPLACE FUNCTION outboxd._origin_place(text) RETURNS text LANGUAGE sql STABLE STRICT PARALLEL SAFE
RETURN (SELECT encode(sha256(s.secret || convert_to('origin ' || $1, 'UTF8')), 'hex') FROM outboxd.schedule_secret s);
