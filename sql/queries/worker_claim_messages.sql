-- The idempotency check: one guarded statement that claims what is claimable and says for every message which case
-- it was.
--   token set                    claimed: state 0 or 1 under the message's epoch → 2 under the next one
--   outbox row in state 2        PROCESSING: left to its lease
--   no outbox row, log SENT      SENT: no call
--   anything else                a stale copy, a canceled or dead row, or an id nobody committed: dropped
-- Interleavings: two workers with copies of one message: the row lock serialises them and the second finds the epoch
-- raised. cancel(), a sweep or a late success in between: the row is gone or its epoch or state differs.
-- Messages must be distinct. $1 ids · $2 epochs · $3 instance · $4 lease in ms · $5 paused lanes
-- Locks: the rows claimed. Index: outbox_pkey, notification_log_pkey.
WITH message AS (
    SELECT m.id, m.epoch FROM unnest($1::bigint[], $2::int[]) m(id, epoch)
), claimed AS (
    UPDATE outboxd.outbox o
       SET state = 2, epoch = o.epoch + 1, attempts = o.attempts + 1, channel_attempts = o.channel_attempts + 1,
           instance = $3::int, retry_at = NULL, next_at = clock_timestamp() + $4::bigint * interval '1 ms'
      FROM (SELECT m.id, m.epoch FROM message m ORDER BY m.id) m
     WHERE o.id = m.id AND o.epoch = m.epoch AND o.state IN (0, 1) AND NOT o.lane = ANY ($5::int[])
    RETURNING o.id, o.epoch, o.attempts, o.channel, o.channel_attempts
)
SELECT m.id, m.epoch, c.epoch AS token, c.attempts, c.channel, c.channel_attempts,
       o.state AS found_state, o.epoch AS found_epoch, o.next_at AS published_at, l.status::text AS status,
       l.topic, l.recipient, l.payload::text AS payload, l.headers::text AS headers, l.created_at,
       (extract(epoch FROM l.expires_at - clock_timestamp()) * 1000)::bigint AS expires_in_ms
  FROM message m
  LEFT JOIN claimed c ON c.id = m.id AND c.epoch = m.epoch + 1 -- not a stale copy in the same batch
  LEFT JOIN outboxd.outbox o ON o.id = m.id
  LEFT JOIN outboxd.notification_log l ON l.id = m.id
