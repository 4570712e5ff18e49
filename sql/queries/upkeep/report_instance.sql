-- What an instance sees beside the database.
-- Interleavings: none: nobody else writes it.
-- $1 instance · $2 clock skew in ms · $3 queue reachable (NULL: it is in the process) · $4 why not ·
-- $5 maxmemory-policy · $6 memory used in bytes · $7 maxmemory in bytes (0: no limit) ·
-- $8 whether a pooler shares its sessions (NULL: as before) ·
-- $9 the topics that it has routes for (NULL: it only relays) ·
-- $10 the channels that are at a limit, as JSON (NULL: none is)
-- Locks: its own row. Index: instance_report_pkey.
INSERT INTO outboxd.instance_report AS r (instance, clock_skew_ms, queue_reachable, queue_error, queue_policy, queue_memory_bytes,
                                          queue_memory_max_bytes, sessions_shared, topics, limits)
VALUES ($1::int, $2::int, $3::bool, $4::text, $5::text, $6::bigint, $7::bigint, $8::bool, $9::text[], $10::text::jsonb)
ON CONFLICT (instance) DO UPDATE
   SET reported_at = clock_timestamp(), clock_skew_ms = excluded.clock_skew_ms, queue_reachable = excluded.queue_reachable,
       queue_error = excluded.queue_error, queue_policy = coalesce(excluded.queue_policy, r.queue_policy),
       queue_memory_bytes = coalesce(excluded.queue_memory_bytes, r.queue_memory_bytes),
       queue_memory_max_bytes = coalesce(excluded.queue_memory_max_bytes, r.queue_memory_max_bytes),
       sessions_shared = coalesce(excluded.sessions_shared, r.sessions_shared), topics = excluded.topics,
       limits = excluded.limits
