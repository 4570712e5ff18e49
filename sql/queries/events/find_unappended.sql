-- The next events that Redis does not have, in the order of their publications, and the number Redis will have come to
-- with them. What its stream would drop again at once, because as many came after it as a stream keeps, is passed over;
-- so a Redis that lost everything costs as many appends as its streams hold, however long events are kept.
-- $1 the number Redis has come to · $2 events a stream keeps · $3 events at most, but one publication · $4 bytes
-- likewise
-- Locks: none. Index: event_publication_pkey, event_stream_pkey, event_pkey.
WITH seen AS MATERIALIZED (
    SELECT p.number, p.topic, p.event_ids, p.through, p.bytes, s.position - p.through < $2::bigint AS is_wanted
      FROM (SELECT p.* FROM outboxd.event_publication p WHERE p.number > $1::bigint ORDER BY p.number LIMIT 5000) p
     CROSS JOIN LATERAL (SELECT s.position FROM outboxd.event_stream s WHERE s.topic = p.topic OFFSET 0) s
), wanted AS MATERIALIZED (
    SELECT w.number, w.topic, w.event_ids, w.through,
           sum(cardinality(w.event_ids)) OVER numbers - cardinality(w.event_ids) AS events_before,
           sum(w.bytes) OVER numbers - w.bytes AS bytes_before
      FROM seen w WHERE w.is_wanted WINDOW numbers AS (ORDER BY w.number)
), next AS MATERIALIZED (
    SELECT w.number, w.topic, w.event_ids, w.through FROM wanted w
     WHERE w.events_before < $3::int AND w.bytes_before < $4::int
), goal AS MATERIALIZED (
    SELECT CASE WHEN (SELECT count(*) FROM next) < (SELECT count(*) FROM wanted) THEN (SELECT max(n.number) FROM next n)
                WHEN (SELECT count(*) FROM seen) = 5000 THEN (SELECT max(s.number) FROM seen s)
                ELSE (SELECT p.newest FROM outboxd.event_progress p WHERE p.only_row) END AS number
)
SELECT g.number AS goal, e.*
  FROM goal g
  LEFT JOIN LATERAL (
       SELECT n.number, i.ordinal, n.through - cardinality(n.event_ids) + i.ordinal AS position, n.topic, e.id, e.key,
              e.payload::text AS payload, e.headers::text AS headers,
              to_char(e.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS created_at
         FROM next n CROSS JOIN unnest(n.event_ids) WITH ORDINALITY i(id, ordinal)
         CROSS JOIN LATERAL (SELECT e.* FROM outboxd.event e WHERE e.id = i.id OFFSET 0) e) e ON true
 ORDER BY e.number, e.ordinal
