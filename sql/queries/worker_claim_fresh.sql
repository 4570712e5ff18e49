-- The short way: takes ready rows, lane by lane above each lane's bound, and claims them at once for idle workers of this
-- instance: state 0 → 2 under the next epoch, without a message. Rows that wait behind their key (3) are reported, to be
-- admitted.
-- Interleavings: other relays skip the rows we lock; a message of an earlier publication finds the epoch raised; cancel()
-- either got the row first or finds it in flight. A crash after the commit leaves the row to its lease, like any claim.
-- A row that carries its letter is read where it is claimed; the others' letters are looked up in the log one by one,
-- whatever the planner thinks of how many they are.
-- What is settled may be in the queue: see relay_reserve_stretch.
-- $1 lanes · $2 after which seq, per lane · $3 rows at most, per lane · $4 instance · $5 lease in ms
-- $6 whether there are stretches (not with an in-process queue)
-- Locks: the rows taken. Index: lane_pkey; outbox_lane, then by place; notification_log_pkey.
WITH picked AS MATERIALIZED (
    SELECT w.place, w.id, w.seq, w.lane, w.state, w.ordering_key
      FROM unnest($1::int[], $2::bigint[], $3::int[]) l(lane, after, take)
      LEFT JOIN LATERAL (SELECT n.settled_to FROM outboxd.lane n WHERE $6::bool AND n.lane = l.lane OFFSET 0) n ON true
     CROSS JOIN LATERAL (
           SELECT o.ctid AS place, o.id, o.seq, o.lane, o.state, o.ordering_key FROM outboxd.outbox o
            WHERE o.lane = l.lane AND o.seq > greatest(l.after, n.settled_to) AND o.state IN (0, 3) AND o.retry_at IS NULL
            ORDER BY o.lane, o.seq LIMIT l.take FOR UPDATE SKIP LOCKED) w
), claimed AS (
    UPDATE outboxd.outbox o
       SET state = 2, epoch = o.epoch + 1, attempts = o.attempts + 1, channel_attempts = o.channel_attempts + 1,
           instance = $4::int, next_at = clock_timestamp() + $5::bigint * interval '1 ms'
      FROM picked w WHERE o.ctid = w.place AND w.state = 0
    RETURNING o.id, o.epoch AS token, o.attempts, o.route_step, o.channel_attempts, w.lane, w.seq,
              o.topic, o.recipient, o.payload, o.created_at
)
SELECT c.id, c.token - 1 AS epoch, c.token, c.attempts, c.route_step, c.channel_attempts, clock_timestamp() AS published_at,
       NULL::smallint AS found_state, NULL::int AS found_epoch, coalesce(l.status, 'QUEUED')::text AS status,
       coalesce(c.topic, l.topic) AS topic, coalesce(c.recipient, l.recipient) AS recipient,
       coalesce(c.payload, l.payload)::text AS payload, l.headers::text AS headers, coalesce(c.created_at, l.created_at) AS created_at,
       (extract(epoch FROM l.expires_at - clock_timestamp()) * 1000)::bigint AS expires_in_ms,
       c.lane, c.seq, NULL AS ordering_key
  FROM claimed c LEFT JOIN LATERAL (
       SELECT l.status, l.topic, l.recipient, l.payload, l.headers, l.created_at, l.expires_at
         FROM outboxd.notification_log l WHERE c.topic IS NULL AND l.id = c.id OFFSET 0) l ON true
 WHERE c.topic IS NOT NULL OR l.topic IS NOT NULL
UNION ALL
SELECT w.id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, w.lane, w.seq, w.ordering_key
  FROM picked w WHERE w.state = 3
 ORDER BY seq
