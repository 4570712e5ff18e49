-- Bulk actions, newest first.
-- $1 only this one; NULL: the last 30 · $2 patterns of LIKE for the topic of its filter, NULL: any
-- Locks: none. Index: bulk_action_pkey, from its end.
SELECT json_build_object('actions', (SELECT json_agg(b) FROM (
    SELECT a.*, extract(epoch FROM a.duration)::float8 AS duration_s FROM outboxd.bulk_actions a
     WHERE ($1::bigint IS NULL OR a.id = $1) AND ($2::text[] IS NULL OR a.filter->>'topic' LIKE ANY ($2)) ORDER BY a.id DESC LIMIT 30) b)) AS page
