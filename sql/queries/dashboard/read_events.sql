-- Events that wait for Redis, by topic, of the 10,000 oldest; the consumer groups, a page of them, worst first: what lacks
-- events, then what is furthest behind; the streams; the last loss.
-- $1 only topics and groups with this in them · $2 $3 $4 $5 the place of the last group of the page before; NULL: from
-- the first on · $6 patterns of LIKE for topics; NULL: all
-- Locks: none. Index: event_outbox_pkey, event_publication_pkey; 51 rows of each list at most.
WITH waiting AS MATERIALIZED (
    SELECT w.topic, sum(w.events)::bigint AS count, extract(epoch FROM clock_timestamp() - min(w.since))::float8 AS oldest_s
      FROM (SELECT o.topic, 1 AS events, o.since FROM (SELECT e.topic, e.since FROM outboxd.event_outbox e
                     WHERE $6::text[] IS NULL OR e.topic LIKE ANY ($6) ORDER BY e.seq LIMIT 10000) o
            UNION ALL
            (SELECT p.topic, cardinality(p.event_ids), p.since FROM outboxd.event_publication p
              WHERE p.number > (SELECT g.appended FROM outboxd.event_progress g) AND ($6 IS NULL OR p.topic LIKE ANY ($6))
              ORDER BY p.number LIMIT 500)) w
     WHERE $1::text IS NULL OR position(lower($1) IN lower(w.topic)) > 0
     GROUP BY w.topic
), stream AS MATERIALIZED (
    SELECT e.topic, e.position FROM outboxd.event_stream e
     WHERE ($1 IS NULL OR position(lower($1) IN lower(e.topic)) > 0) AND ($6 IS NULL OR e.topic LIKE ANY ($6))
), ranked AS MATERIALIZED (
    SELECT g.*, (g.cut_at IS NULL)::int AS rank, -(g.behind::numeric * 1000 / greatest(g.stream_max, 1))::bigint AS behind_share,
           concat_ws(' ', g.topic, g.consumer_group) AS name
      FROM outboxd.event_consumers g
     WHERE ($1 IS NULL OR position(lower($1) IN lower(concat_ws(' ', g.topic, g.consumer_group))) > 0)
       AND ($6 IS NULL OR g.topic LIKE ANY ($6))
), listed AS (
    SELECT r.*, json_build_array(r.rank, r.behind_share, -r.behind, r.name) AS place FROM ranked r
     WHERE $2::bigint IS NULL OR (r.rank, r.behind_share, -r.behind, r.name COLLATE "C") > ($2, $3::bigint, $4::bigint, $5::text COLLATE "C")
     ORDER BY r.rank, r.behind_share, -r.behind, r.name COLLATE "C" LIMIT 51
)
SELECT json_build_object(
    'waiting', (SELECT json_agg(w) FROM (SELECT x.* FROM waiting x ORDER BY x.count DESC, x.topic LIMIT 10) w),
    'streams', (SELECT json_agg(s) FROM (SELECT x.* FROM stream x ORDER BY x.position DESC, x.topic LIMIT 50) s),
    'consumers', (SELECT json_agg(l) FROM listed l),
    'total', json_build_object(
        'waiting', (SELECT count(*) FROM waiting), 'streams', (SELECT count(*) FROM stream), 'matching', (SELECT count(*) FROM ranked),
        'lacking', (SELECT count(*) FROM ranked r WHERE r.rank = 0),
        'has_more_events', (SELECT count(*) > 9999 FROM (
            SELECT FROM outboxd.event_outbox o WHERE $6 IS NULL OR o.topic LIKE ANY ($6) LIMIT 10000) e)),
    'progress', (SELECT row_to_json(g) FROM outboxd.event_progress g WHERE $6 IS NULL)) AS page
