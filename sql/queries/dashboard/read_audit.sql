-- What operators did, newest first.
-- $1 only before this number; NULL: from the newest on · $2 how many
-- Locks: none. Index: audit_pkey, from its end.
SELECT json_build_object('entries', (SELECT json_agg(a) FROM (
    SELECT u.* FROM outboxd.audit u WHERE $1::bigint IS NULL OR u.id < $1 ORDER BY u.id DESC LIMIT $2::bigint) a)) AS page
