-- Bulk actions, newest first, a page of them.
-- $1 only this one; NULL: all · $2 only before this number; NULL: from the newest on · $3 patterns of LIKE for the topic of
-- its filter; NULL: any
-- Locks: none. Index: bulk_action_pkey, from its end; 31 rows at most.
SELECT json_build_object('actions', (SELECT json_agg(b) FROM (
    SELECT a.*, extract(epoch FROM a.duration)::float8 AS duration_s FROM outboxd.bulk_actions a
     WHERE ($1::bigint IS NULL OR a.id = $1) AND ($2::bigint IS NULL OR a.id < $2)
       AND ($3::text[] IS NULL OR a.filter->>'topic' LIKE ANY ($3)) ORDER BY a.id DESC LIMIT 31) b)) AS page
