-- Events that wait for Redis, by topic, of the 10,000 oldest; the consumer groups; the last loss.
-- $1 patterns of LIKE for topics, NULL: all. Locks: none. Index: event_outbox_pkey, event_publication_pkey.
WITH waiting AS (
    SELECT w.topic, sum(w.events)::bigint AS count, extract(epoch FROM clock_timestamp() - min(w.since))::float8 AS oldest_s
      FROM (SELECT o.topic, 1 AS events, o.since FROM (SELECT e.topic, e.since FROM outboxd.event_outbox e ORDER BY e.seq LIMIT 10000) o
            UNION ALL
            (SELECT p.topic, cardinality(p.event_ids), p.since FROM outboxd.event_publication p
              WHERE p.number > (SELECT g.appended FROM outboxd.event_progress g) ORDER BY p.number LIMIT 500)) w
     WHERE $1::text[] IS NULL OR w.topic LIKE ANY ($1) GROUP BY w.topic ORDER BY 2 DESC LIMIT 100
)
SELECT json_build_object(
    'waiting', (SELECT json_agg(w) FROM waiting w),
    'streams', (SELECT json_agg(s) FROM (SELECT e.topic, e.position FROM outboxd.event_stream e WHERE $1::text[] IS NULL OR e.topic LIKE ANY ($1) ORDER BY e.topic LIMIT 100) s),
    'consumers', (SELECT json_agg(c) FROM (
        SELECT g.* FROM outboxd.event_consumers g
         WHERE $1::text[] IS NULL OR g.topic LIKE ANY ($1) ORDER BY g.cut_at IS NULL, g.topic, g.consumer_group LIMIT 100) c),
    'progress', (SELECT row_to_json(g) FROM outboxd.event_progress g WHERE $1::text[] IS NULL)) AS page
