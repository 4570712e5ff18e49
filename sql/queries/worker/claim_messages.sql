-- The idempotency check: one guarded statement that claims what is claimable and says for every message which case
-- it was.
--   token set, no log row        its record was deleted: to be given up
--   token set                    claimed: ready or published under the message's epoch → processing under the next one
--   outbox row processing        PROCESSING: left to its lease
--   no outbox row, log SENT      SENT: no call
--   anything else                a stale copy, a canceled or dead row, or an id nobody committed: dropped
-- Interleavings: two workers with copies of one message: the row lock serialises them and the second finds the epoch
-- raised. cancel(), a sweep or a late success in between: the row is gone or its epoch or state differs. The rows are
-- named by one array, in order, and the epoch of each is found by its position there, by halving: the plan is the same
-- whatever the statistics say of a table that is empty now and then, and no two lists of a batch are joined. What was
-- not claimed is searched for only if there is such a message: mostly there is none. A payload that is too large to come
-- along is read by its call.
-- $1 ids, ascending, each once · $2 epochs · $3 instance · $4 lease in ms · $5 bytes of a payload at most
-- Locks: the rows claimed, by id. Index: outbox_pkey, notification_log_pkey.
WITH claimed AS (
    UPDATE outboxd.outbox o
       SET state = 'processing', epoch = o.epoch + 1, attempts = o.attempts + 1, channel_attempts = o.channel_attempts + 1,
           instance = $3::int, retry_at = NULL, lease_until = clock_timestamp() + $4::bigint * interval '1 ms'
     WHERE o.id = ANY ($1::bigint[]) AND o.epoch = ($2::int[])[width_bucket(o.id, $1::bigint[])]
       AND o.state IN ('ready', 'published')
    RETURNING o.id, o.epoch AS token, o.attempts, o.route_step, o.channel_attempts, o.published_at
)
SELECT c.id, c.token - 1 AS epoch, c.token, c.attempts, c.route_step, c.channel_attempts, coalesce(c.published_at, l.created_at) AS published_at,
       NULL AS found_state, l.status::text AS status, l.topic, l.recipient,
       CASE WHEN octet_length(l.payload) <= $5::int THEN l.payload END AS payload, octet_length(l.payload) AS payload_bytes,
       l.headers::text AS headers, l.created_at, CASE WHEN l.expires_at IS NOT NULL THEN
       (extract(epoch FROM greatest(least(l.expires_at, '9999-12-31+00'), '0001-01-01+00') - clock_timestamp()) * 1000)::bigint END AS expires_in_ms
  FROM claimed c LEFT JOIN LATERAL (
       SELECT l.status, l.topic, l.recipient, l.payload::text AS payload, l.headers, l.created_at, l.expires_at
         FROM outboxd.notification_log l WHERE l.id = c.id OFFSET 0) l ON true
UNION ALL
SELECT m.id, m.epoch, NULL, NULL, NULL, NULL, NULL, o.state::text, l.status::text, NULL, NULL, NULL, NULL, NULL, NULL, NULL
  FROM unnest($1::bigint[], $2::int[]) m(id, epoch)
  LEFT JOIN LATERAL (SELECT o.state FROM outboxd.outbox o WHERE o.id = m.id OFFSET 0) o ON true
  LEFT JOIN LATERAL (SELECT l.status FROM outboxd.notification_log l WHERE l.id = m.id OFFSET 0) l ON true
 WHERE (SELECT count(*) FROM claimed) < cardinality($1::bigint[]) AND m.id NOT IN (SELECT c.id FROM claimed c)
