-- What an instance sees beside the database. Answers whether the views know a route of each of its topics: else it
-- tells of them again.
-- Interleavings: none: nobody else writes it.
-- $1 instance · $2 clock skew in ms · $3 queue reachable (NULL: it is in the process) · $4 why not ·
-- $5 maxmemory-policy · $6 memory used in bytes · $7 maxmemory in bytes (0: no limit) ·
-- $8 whether a pooler shares its sessions (NULL: as before) ·
-- $9 the topics that it has routes for (NULL: it only relays) ·
-- $10 files it may have open · $11 files it would use · $12 what its calls lacked (NULL: nothing) · $13 how many went
-- back · $14 since so many ms · $15 the last so many ms ago · $16 the channels that are at a limit, as JSON (NULL: none is)
-- $17 the topics that have their share of its calls, as JSON (NULL: none has)
-- Locks: its own row. Index: instance_report_pkey; route_pkey, one probe a topic.
INSERT INTO outboxd.instance_report AS r (instance, clock_skew_ms, queue_reachable, queue_error, queue_policy, queue_memory_bytes,
                                          queue_memory_max_bytes, sessions_shared, topics, files_max, files_wanted, lacked,
                                          lacked_calls, lacked_since, lacked_at, limits, shares)
VALUES ($1::int, $2::int, $3::bool, $4::text, $5::text, $6::bigint, $7::bigint, $8::bool, $9::text[], $10::bigint, $11::bigint, $12::text,
        $13::bigint, clock_timestamp() - $14::bigint * interval '1 ms', clock_timestamp() - $15::bigint * interval '1 ms',
        $16::text::jsonb, $17::text::jsonb)
ON CONFLICT (instance) DO UPDATE
   SET reported_at = clock_timestamp(), clock_skew_ms = excluded.clock_skew_ms, queue_reachable = excluded.queue_reachable,
       queue_error = excluded.queue_error, queue_policy = coalesce(excluded.queue_policy, r.queue_policy),
       queue_memory_bytes = coalesce(excluded.queue_memory_bytes, r.queue_memory_bytes),
       queue_memory_max_bytes = coalesce(excluded.queue_memory_max_bytes, r.queue_memory_max_bytes),
       sessions_shared = coalesce(excluded.sessions_shared, r.sessions_shared), topics = excluded.topics,
       files_max = excluded.files_max, files_wanted = excluded.files_wanted, lacked = excluded.lacked,
       lacked_calls = excluded.lacked_calls, lacked_since = excluded.lacked_since, lacked_at = excluded.lacked_at,
       limits = excluded.limits, shares = excluded.shares
RETURNING NOT EXISTS (
          SELECT FROM unnest(r.topics) t(topic)
           WHERE (SELECT o.topic FROM outboxd.route o WHERE o.topic = t.topic LIMIT 1) IS NULL) AS has_routes
