-- The consumer groups of these streams, as Redis shows them. A group that was given nothing since the last poll still
-- needs the position that was noted for it: if the stream begins after that, the entries between were cut off before
-- the group had them. Answers with the groups of which something is to be told: cut just now, or just come close to it
-- (80 % of what a stream keeps).
-- Interleavings: only under the lease, one poll at a time. A group that was made anew under its name was given
-- something else last, except at the beginning of the stream, where it needs the same.
-- $1 lease · $2 instance · $3 events a stream keeps · $4 topics polled · $5 topic and $6 name of each group ·
-- $7 id of the entry it was given last · $8 position of the next one (NULL: the stream is empty) ·
-- $9 position of the oldest entry it can still acknowledge (NULL: none) · $10 entries it cannot acknowledge any more ·
-- $11 last position in its stream
-- Locks: the rows; the lease FOR KEY SHARE. Index: leader_lease_pkey, event_group_pkey, event_publication_topic,
-- event_pkey.
WITH lease AS MATERIALIZED (SELECT WHERE outboxd._owns_lease($1::text, $2::int)), found AS MATERIALIZED (
    SELECT f.topic, f.name, f.delivered_id, f.next, f.pending, f.gone, o.behind AS behind_before, o.cut_from,
           o.pending AS pending_before,
           CASE WHEN o.delivered_id = f.delivered_id THEN coalesce(o.needs, f.next) ELSE f.next END AS needed,
           greatest(f.gone - coalesce(o.gone, 0), 0) AS newly_gone,
           greatest(f.last - least(f.next, f.pending) + 1, 0) AS behind
      FROM unnest($5::text[], $6::text[], $7::text[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[])
               AS f(topic, name, delivered_id, next, pending, gone, last)
      LEFT JOIN LATERAL (
           SELECT g.* FROM outboxd.event_group g WHERE g.topic = f.topic AND g.name = f.name OFFSET 0) o ON true
     WHERE EXISTS (SELECT FROM lease)
), judged AS MATERIALIZED (
    SELECT f.topic, f.name, f.delivered_id, f.next, f.pending, f.gone, f.behind_before, f.behind, c.cut,
           coalesce(f.cut_from, CASE WHEN c.cut > 0 THEN (
               SELECT min(e.created_at)
                 FROM (SELECT p.event_ids FROM outboxd.event_publication p
                        WHERE p.topic = f.topic AND p.through >= c.first_cut ORDER BY p.through LIMIT 1) p
                CROSS JOIN unnest(p.event_ids) i(id) JOIN outboxd.event e ON e.id = i.id) END) AS cut_from
      FROM found f CROSS JOIN LATERAL (
           SELECT greatest(f.next - f.needed, 0) + f.newly_gone AS cut,
                  CASE WHEN f.newly_gone > 0 THEN coalesce(f.pending_before, f.needed - f.newly_gone)
                       ELSE f.needed END AS first_cut) c
), kept AS (
    INSERT INTO outboxd.event_group AS g
           (topic, name, delivered_id, needs, pending, gone, behind, stream_max, cut_at, cut_from, cut_events)
    SELECT j.topic, j.name, j.delivered_id, j.next, j.pending, j.gone, j.behind, $3::bigint,
           CASE WHEN j.cut > 0 THEN clock_timestamp() END, j.cut_from, j.cut
      FROM judged j ORDER BY j.topic, j.name
    ON CONFLICT (topic, name) DO UPDATE
       SET delivered_id = excluded.delivered_id, needs = excluded.needs, pending = excluded.pending,
           gone = excluded.gone, behind = excluded.behind, stream_max = excluded.stream_max, seen_at = clock_timestamp(),
           cut_at = coalesce(excluded.cut_at, g.cut_at), cut_from = coalesce(g.cut_from, excluded.cut_from),
           cut_events = g.cut_events + excluded.cut_events
), missing AS (
    DELETE FROM outboxd.event_group g
     WHERE g.topic = ANY ($4::text[]) AND EXISTS (SELECT FROM lease)
       AND NOT EXISTS (SELECT FROM found f WHERE f.topic = g.topic AND f.name = g.name)
)
SELECT j.topic, j.name, j.cut, j.behind
  FROM judged j
 WHERE j.cut > 0 OR (j.behind >= $3::bigint * 0.8 AND coalesce(j.behind_before, 0) < $3::bigint * 0.8)
