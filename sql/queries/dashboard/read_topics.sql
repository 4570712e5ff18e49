-- Topics that have work, a route, a pause or traffic in the last hour, a page of them, worst first: paused; failing within
-- the hour; waiting, the longest first; with dead letters, the most first. Of those on the page where they go by the
-- routes in use, which running instances have no route for them, and how long they took.
-- $1 only names with this in them · $2 $3 $4 $5 the place of the last one of the page before; NULL: from the first on
-- $6 patterns of LIKE for topics; NULL: all
-- Locks: none. Index: see _topics; the primary keys of the statistics, one probe a minute and topic. 51 rows at most.
WITH carrier AS MATERIALIZED (
    SELECT c.id, c.host, c.topics FROM outboxd._carrier c
), routed AS MATERIALIZED (
    SELECT r.published, r.called FROM outboxd._routed r
), paused AS MATERIALIZED (
    SELECT p.name, p.paused_at FROM outboxd.topic p WHERE p.paused_at IS NOT NULL
), known AS (
    SELECT t.topic, t.pending, t.queued, t.processing, t.dead, t.waiting_since, t.sent, t.failed, t.retried FROM outboxd._topics t
     WHERE t.topic <> '(other)'
    UNION ALL
    SELECT n.topic, 0, 0, 0, 0, NULL, 0, 0, 0
      FROM (SELECT p.name AS topic FROM paused p
            UNION SELECT r.topic FROM carrier c CROSS JOIN LATERAL unnest(c.topics) r(topic) WHERE r.topic <> 'default') n
     WHERE n.topic NOT IN (SELECT t.topic FROM outboxd._topics t)
), ranked AS MATERIALIZED (
    SELECT k.*, p.paused_at, CASE WHEN p.paused_at IS NOT NULL THEN 0 WHEN k.failed > 0 THEN 1 WHEN k.waiting_since IS NOT NULL THEN 2
                                  WHEN k.dead > 0 THEN 3 ELSE 4 END AS rank,
           coalesce((extract(epoch FROM k.waiting_since) * 1e6)::bigint, 9223372036854775807) AS since_us
      FROM known k LEFT JOIN paused p ON p.name = k.topic WHERE $6::text[] IS NULL OR k.topic LIKE ANY ($6)
), listed AS MATERIALIZED (
    SELECT r.* FROM ranked r
     WHERE ($1::text IS NULL OR position(lower($1) IN lower(r.topic)) > 0)
       AND ($2::bigint IS NULL OR (r.rank, r.since_us, -r.dead, r.topic COLLATE "C") > ($2, $3::bigint, $4::bigint, $5::text COLLATE "C"))
     ORDER BY r.rank, r.since_us, -r.dead, r.topic COLLATE "C" LIMIT 51
), span AS (
    SELECT l.topic, s.bucket, sum(s.count) AS n
      FROM listed l CROSS JOIN generate_series(0, 4) m(ago) JOIN outboxd.statistics_span s
        ON s.minute = date_trunc('minute', now()) - m.ago * interval '1 min' AND s.measure = 'notify' AND s.subject = l.topic AND s.origin = ''
     GROUP BY 1, 2
), spent AS (
    SELECT x.topic, (2 ^ (min(x.bucket) FILTER (WHERE x.upto >= x.total * 0.50) / 4.0))::float8 AS p50_ms,
           (2 ^ (min(x.bucket) FILTER (WHERE x.upto >= x.total * 0.99) / 4.0))::float8 AS p99_ms
      FROM (SELECT s.topic, s.bucket, sum(s.n) OVER (PARTITION BY s.topic ORDER BY s.bucket) AS upto,
                   sum(s.n) OVER (PARTITION BY s.topic) AS total FROM span s) x GROUP BY 1
), drawn AS (
    SELECT l.topic, l.paused_at, l.pending, l.queued, l.processing, l.dead, l.sent, l.failed, l.retried, s.p50_ms, s.p99_ms,
           greatest(extract(epoch FROM clock_timestamp() - l.waiting_since)::float8, CASE WHEN l.waiting_since IS NOT NULL THEN 0 END) AS oldest_s,
           json_build_array(l.rank, l.since_us, -l.dead, l.topic) AS place,
           (SELECT json_agg(r.channel ORDER BY r.position) FROM outboxd.route r
             WHERE r.topic = CASE WHEN EXISTS (SELECT FROM outboxd.route o WHERE o.topic = l.topic) THEN l.topic ELSE 'default' END) AS route,
           -- Nobody publishes it, or nobody calls for it.
           (SELECT NOT r.published ?| ARRAY[l.topic, 'default'] OR NOT r.called ?| ARRAY[l.topic, 'default'] FROM routed r) AS is_routeless,
           (SELECT json_build_object('instances', count(c.topics), 'lacking', count(*) FILTER (WHERE c.lacks),
                                     'names', array_to_string((array_agg(format('%s on %s', c.id, c.host) ORDER BY c.id) FILTER (WHERE c.lacks))[1:5], ', '))
              FROM (SELECT w.id, w.host, w.topics, coalesce(NOT w.topics && ARRAY[l.topic, 'default'], false) AS lacks FROM carrier w) c)
               AS routed
      FROM listed l LEFT JOIN spent s ON s.topic = l.topic
     ORDER BY l.rank, l.since_us, -l.dead, l.topic COLLATE "C"
)
SELECT json_build_object(
    'topics', (SELECT json_agg(d) FROM drawn d),
    'total', (SELECT json_build_object(
        'topics', count(*), 'matching', count(*) FILTER (WHERE $1 IS NULL OR position(lower($1) IN lower(r.topic)) > 0),
        'paused', count(*) FILTER (WHERE r.rank = 0), 'failing', count(*) FILTER (WHERE r.failed > 0),
        'waiting', count(*) FILTER (WHERE r.waiting_since IS NOT NULL)) FROM ranked r),
    'unnamed', (SELECT json_build_object('sent', t.sent, 'failed', t.failed) FROM outboxd._topics t WHERE t.topic = '(other)' AND $6 IS NULL)) AS page
