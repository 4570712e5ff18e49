-- Moves the events that have waited longest into publications, one a topic, which fixes their order and their numbers.
-- Only once Redis has everything numbered so far, so that at most one reservation is under way. No row: the lease is
-- somebody else's, or something else was numbered meanwhile.
-- Interleavings: an owner that was paused and woke up late finds no lease; the lease cannot change its owner meanwhile.
-- publish() and replay_events() only add rows. A crash after this leaves numbers above what Redis has: the next owner
-- appends them. Where Redis has come further than this database (which was set back), numbers go on from there, else
-- they would count as appended.
-- $1 lease · $2 instance · $3 the number Redis has come to · $4 events at most · $5 bytes of payload and headers at most,
-- but one event
-- Locks: the rows; the row of progress; the lease FOR KEY SHARE; rows of streams, by name. Index: leader_lease_pkey,
-- event_progress_pkey, event_outbox_pkey, event_pkey, event_stream_pkey.
WITH lease AS MATERIALIZED (SELECT WHERE outboxd._owns_lease($1::text, $2::int)), progress AS MATERIALIZED (
    SELECT greatest(p.newest, $3::bigint) AS newest FROM outboxd.event_progress p
     WHERE p.only_row AND p.newest <= $3::bigint AND EXISTS (SELECT FROM lease) FOR UPDATE
), waiting AS MATERIALIZED (
    SELECT w.seq, w.event_id, w.topic, w.since, e.bytes, sum(e.bytes) OVER (ORDER BY w.seq) - e.bytes AS bytes_before
      FROM (SELECT o.seq, o.event_id, o.topic, o.since FROM outboxd.event_outbox o
             WHERE EXISTS (SELECT FROM progress) ORDER BY o.seq LIMIT $4::int) w
     CROSS JOIN LATERAL (
           SELECT coalesce((SELECT octet_length(e.payload::text) + coalesce(octet_length(e.headers::text), 0)
                              FROM outboxd.event e WHERE e.id = w.event_id), 0) AS bytes
           OFFSET 0) e
), taken AS MATERIALIZED (
    SELECT w.seq, w.event_id, w.topic, w.since, w.bytes FROM waiting w WHERE w.bytes_before < $5::int
), removed AS (
    DELETE FROM outboxd.event_outbox o WHERE o.seq = ANY (ARRAY(SELECT t.seq FROM taken t))
), topics AS MATERIALIZED (
    SELECT t.topic, array_agg(t.event_id ORDER BY t.seq) AS event_ids, count(*) AS events, sum(t.bytes) AS bytes,
           min(t.since) AS since, row_number() OVER (ORDER BY min(t.seq)) AS ordinal
      FROM taken t GROUP BY t.topic
), streams AS (
    INSERT INTO outboxd.event_stream AS s (topic, position) SELECT t.topic, t.events FROM topics t ORDER BY t.topic
    ON CONFLICT (topic) DO UPDATE SET position = s.position + excluded.position
    RETURNING s.topic, s.position
), numbered AS (
    INSERT INTO outboxd.event_publication (number, topic, event_ids, through, bytes, since)
    SELECT p.newest + t.ordinal, t.topic, t.event_ids, s.position, t.bytes, t.since
      FROM progress p CROSS JOIN topics t JOIN streams s ON s.topic = t.topic
)
UPDATE outboxd.event_progress p SET newest = r.newest + (SELECT count(*) FROM topics), appended = $3::bigint
  FROM progress r WHERE p.only_row RETURNING p.newest
