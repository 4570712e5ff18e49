-- An instance is alive. Answers with the highest queue counter any instance has seen and how many are alive;
-- no row: it was removed while it slept and must register anew.
-- $1 instance · $2 in flight · $3 queue counter seen · $4 newest publication seen claimed (may be NULL)
-- $5 draining · $6 clock skew in ms
-- Locks: its own row (HOT). Index: instance_pkey.
UPDATE outboxd.instance i
   SET heartbeat_at = clock_timestamp(), in_flight = $2::int, queue_counter = greatest(i.queue_counter, $3::bigint),
       claimed_through = greatest(i.claimed_through, $4::timestamptz), draining = $5::bool, clock_skew_ms = $6::int
 WHERE i.id = $1::int AND i.stopped_at IS NULL
RETURNING (SELECT max(o.queue_counter) FROM outboxd.instance o WHERE o.queue_kind = i.queue_kind) AS queue_counter,
          (SELECT count(*) FROM outboxd.instance o
            WHERE o.stopped_at IS NULL AND o.heartbeat_at > clock_timestamp() - o.ttl) AS alive
