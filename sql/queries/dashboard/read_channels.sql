-- Every channel, and every origin of it that was called lately or is held, a page of them, worst first: held by a circuit,
-- as a whole, then single origins; paused, asked to wait, failing; then whole channels, then origins. Of each of these what
-- the most rows wait for comes first. With the topics whose routes name the channel.
-- $1 only channels and origins with this in them · $2 $3 $4 $5 the place of the last one of the page before; NULL: from
-- the first on · $6 whether whoever asks may see origins: else their ends are compared, and their order tells nothing
-- Locks: none. Index: see the view; 51 rows at most.
WITH known AS MATERIALIZED (
    SELECT h.*, CASE WHEN h.circuit <> 'closed' THEN CASE WHEN h.origin IS NULL THEN 0 ELSE 1 END WHEN h.paused THEN 2
                     WHEN h.held_until IS NOT NULL THEN 3 WHEN h.success_percent < 90 THEN 4 WHEN h.origin IS NULL THEN 5 ELSE 6 END AS rank,
           concat_ws(' ', h.channel, CASE WHEN $6::boolean THEN h.origin ELSE outboxd._masked_origin(h.origin) END) AS name,
           concat_ws(' ', h.channel, CASE WHEN $6 THEN h.origin ELSE outboxd._origin_place(h.origin) END) AS key
      FROM outboxd.channel_health h
), named AS MATERIALIZED (
    SELECT k.*, -coalesce(k.waiting, 0) AS of_waiting FROM known k WHERE k.origin IS DISTINCT FROM '(other)'
), listed AS (
    SELECT n.*, json_build_array(n.rank, n.of_waiting, -n.calls, n.key) AS place,
           (SELECT json_agg(r.topic) FROM (SELECT u.topic FROM outboxd.route u WHERE u.channel = n.channel GROUP BY 1 ORDER BY 1 LIMIT 10) r) AS topics,
           (SELECT count(DISTINCT u.topic) FROM outboxd.route u WHERE u.channel = n.channel) AS topics_count
      FROM (SELECT m.* FROM named m
             WHERE ($1::text IS NULL OR position(lower($1) IN lower(m.name)) > 0)
               AND ($2::bigint IS NULL OR (m.rank, m.of_waiting, -m.calls, m.key COLLATE "C") > ($2, $3::bigint, $4::bigint, $5::text COLLATE "C"))
             ORDER BY m.rank, m.of_waiting, -m.calls, m.key COLLATE "C" LIMIT 51) n
     ORDER BY n.rank, n.of_waiting, -n.calls, n.key COLLATE "C"
)
SELECT json_build_object(
    'channels', (SELECT json_agg(l) FROM listed l),
    'total', (SELECT json_build_object(
        'channels', count(DISTINCT n.channel), 'origins', count(n.origin), 'held', count(*) FILTER (WHERE n.circuit <> 'closed'),
        'paused', count(*) FILTER (WHERE n.paused), 'failing', count(*) FILTER (WHERE n.rank = 4),
        'matching', count(*) FILTER (WHERE $1 IS NULL OR position(lower($1) IN lower(n.name)) > 0)) FROM named n),
    'unnamed', (SELECT json_build_object('calls', sum(k.calls)) FROM known k WHERE k.origin = '(other)' HAVING sum(k.calls) > 0)) AS page
