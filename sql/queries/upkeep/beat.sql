-- An instance is alive. Answers with the highest queue counter any instance has seen, how many are alive, this
-- installation's id and database, since when the server runs and what is to be done about a copy (see _recognise()); no row: it was removed while it slept, or the schema is another
-- one, and it must register anew. Its row is known by number and start: in a schema that was made anew or restored the
-- number may be somebody else's.
-- Interleavings: nobody else writes a live row but whoever removes it; then there is none.
-- $1 instance · $2 in flight · $3 queue counter seen · $4 newest publication seen claimed (may be NULL)
-- $5 draining · $6 clock skew in ms · $7 registered at
-- $8 for how many ms it has gone on without its Redis (NULL: it has not) · $9 keeps what others lack a route for
-- Locks: its own row (HOT). Index: instance_pkey.
UPDATE outboxd.instance i
   SET heartbeat_at = clock_timestamp(), in_flight = $2::int, queue_counter = greatest(i.queue_counter, $3::bigint),
       claimed_through = greatest(i.claimed_through, $4::timestamptz), draining = $5::bool, clock_skew_ms = $6::int, keeps_its_own = $9::bool,
       fallback_since = CASE WHEN $8::bigint IS NOT NULL THEN coalesce(i.fallback_since, clock_timestamp() - $8::bigint * interval '1 ms') END
 WHERE i.id = $1::int AND i.started_at = $7::timestamptz AND i.stopped_at IS NULL
RETURNING (SELECT max(o.queue_counter) FROM outboxd.instance o WHERE o.queue_kind = i.queue_kind) AS queue_counter,
          (SELECT count(*) FROM outboxd.instance o
            WHERE o.stopped_at IS NULL AND o.heartbeat_at > clock_timestamp() - o.ttl) AS alive,
          (SELECT s.install_id FROM outboxd.setting s) AS install_id,
          pg_postmaster_start_time() AS server_started_at, outboxd._recognise() AS origin_work,
          (SELECT outboxd._database()) AS database, (SELECT o.adopted_as = 'same' AND o.phase = 'own' FROM outboxd.origin o) AS is_moved
