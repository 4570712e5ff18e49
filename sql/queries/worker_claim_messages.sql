-- The idempotency check: one guarded statement that claims what is claimable and says for every message which case
-- it was.
--   token set                    claimed: state 0 or 1 under the message's epoch → 2 under the next one
--   outbox row in state 2        PROCESSING: left to its lease
--   no outbox row, log SENT      SENT: no call
--   anything else                a stale copy, a canceled or dead row, or an id nobody committed: dropped
-- Interleavings: two workers with copies of one message: the row lock serialises them and the second finds the epoch
-- raised. cancel(), a sweep or a late success in between: the row is gone or its epoch or state differs.
-- The rows are named by one array, in order, and the epoch of each is found by its place there, by halving: the plan is the
-- same whatever the statistics say of a table that is empty now and then, and no two lists of a batch are joined. What was
-- not claimed is looked for only if there is such a message: mostly there is none.
-- When a row was published is told by the id of its publication (V0019; ids of before were small). A row of a stretch has none:
-- of the latest stretches it is the last that begins at or below its number, whichever lane that is of; they are seconds old.
-- A row that carries its letter is read where it is claimed; the others' letters are looked up in the log.
-- $1 ids, ascending, each once · $2 epochs · $3 instance · $4 lease in ms · $5 paused lanes
-- Locks: the rows claimed, by id. Index: outbox_pkey, notification_log_pkey.
WITH claimed AS (
    UPDATE outboxd.outbox o
       SET state = 2, epoch = o.epoch + 1, attempts = o.attempts + 1, channel_attempts = o.channel_attempts + 1,
           instance = $3::int, retry_at = NULL, next_at = clock_timestamp() + $4::bigint * interval '1 ms'
     WHERE o.id = ANY ($1::bigint[]) AND o.epoch = ($2::int[])[width_bucket(o.id, $1::bigint[])]
       AND o.state IN (0, 1) AND NOT o.lane = ANY ($5::int[])
    RETURNING o.id, o.epoch AS token, o.attempts, o.route_step, o.channel_attempts, o.batch, o.seq,
              o.topic, o.recipient, o.payload, o.created_at
), stretch AS MATERIALIZED (
    SELECT p.seq_from, p.reserved_at
      FROM (SELECT p.seq_from, p.reserved_at FROM outboxd.publication p WHERE p.lane IS NOT NULL ORDER BY p.id DESC LIMIT 32) p
     ORDER BY p.seq_from
)
SELECT c.id, c.token - 1 AS epoch, c.token, c.attempts, c.route_step, c.channel_attempts,
       coalesce(CASE WHEN c.batch > 1000000000000000 THEN to_timestamp(c.batch::float8 / 1000000000)
                     WHEN c.batch IS NULL
                     THEN (ARRAY(SELECT s.reserved_at FROM stretch s))[width_bucket(c.seq, ARRAY(SELECT s.seq_from FROM stretch s))] END,
                c.created_at, l.created_at) AS published_at,
       NULL::smallint AS found_state, NULL::int AS found_epoch, coalesce(l.status, 'QUEUED')::text AS status,
       coalesce(c.topic, l.topic) AS topic, coalesce(c.recipient, l.recipient) AS recipient,
       coalesce(c.payload, l.payload)::text AS payload, l.headers::text AS headers, coalesce(c.created_at, l.created_at) AS created_at,
       (extract(epoch FROM l.expires_at - clock_timestamp()) * 1000)::bigint AS expires_in_ms
  FROM claimed c LEFT JOIN LATERAL (
       SELECT l.status, l.topic, l.recipient, l.payload, l.headers, l.created_at, l.expires_at
         FROM outboxd.notification_log l WHERE c.topic IS NULL AND l.id = c.id OFFSET 0) l ON true
 WHERE c.topic IS NOT NULL OR l.topic IS NOT NULL
UNION ALL
SELECT m.id, m.epoch, NULL, NULL, NULL, NULL, NULL, o.state, o.epoch, l.status::text, NULL, NULL, NULL, NULL, NULL, NULL
  FROM unnest($1::bigint[], $2::int[]) m(id, epoch)
  LEFT JOIN LATERAL (SELECT o.state, o.epoch FROM outboxd.outbox o WHERE o.id = m.id OFFSET 0) o ON true
  LEFT JOIN LATERAL (SELECT l.status FROM outboxd.notification_log l WHERE l.id = m.id OFFSET 0) l ON true
 WHERE (SELECT count(*) FROM claimed) < cardinality($1::bigint[]) AND m.id NOT IN (SELECT c.id FROM claimed c)
