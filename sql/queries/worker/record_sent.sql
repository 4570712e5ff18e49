-- Deliveries: the outbox row goes and the log says SENT. A 2xx always wins, so there is no token in the guard; the
-- token only tells whether the lease was over. The notification is known by id and created_at: after a restore an id
-- may be somebody else's. What is not returned had ended before, or is another's: worker/record_late_sent. The rows are
-- named by one array, in order, and what belongs to each is found by its position there, by halving: the plan is the
-- same whatever the statistics say of a table that is empty now and then, and no two lists of a batch are joined.
-- Interleavings: claim, sweep and cancel of the same row wait for our lock and then find it gone; another worker's
-- success for it comes second and finds no work.
-- $1 ids, ascending · $2 tokens · $3 channels · $4 http statuses · $5 created_at · $6 the provider's ids
-- Locks: outbox rows, then log rows, by id. Index: outbox_pkey, notification_log_pkey, then by ctid.
WITH found AS MATERIALIZED (
    SELECT l.id, l.ctid FROM outboxd.notification_log l
     WHERE l.id = ANY ($1::bigint[]) AND l.created_at = ($5::timestamptz[])[width_bucket(l.id, $1::bigint[])]
), gone AS (
    DELETE FROM outboxd.outbox o WHERE o.id = ANY (ARRAY(SELECT f.id FROM found f))
    RETURNING o.id, o.epoch, o.state, o.attempts, CASE WHEN o.has_turn THEN ARRAY[o.topic, o.ordering_key] END AS released_key,
              width_bucket(o.id, $1::bigint[]) AS n
)
UPDATE outboxd.notification_log l
   SET status = 'SENT', finished_at = statement_timestamp(), epoch = g.epoch, attempts = g.attempts,
       channel = ($3::text[])[g.n], http_status = ($4::smallint[])[g.n], error = NULL,
       provider_id = ($6::text[])[g.n]
  FROM (SELECT g.*, (ARRAY(SELECT f.ctid FROM found f ORDER BY f.id))[width_bucket(g.id, ARRAY(SELECT f.id FROM found f ORDER BY f.id))] AS ctid
          FROM gone g) g
 WHERE l.ctid = g.ctid AND l.id = g.id AND l.status <> 'SENT'
RETURNING l.id, g.epoch = ($2::int[])[g.n] AND g.state = 'processing' AS on_time, g.released_key, l.finished_at,
          greatest(date_part('epoch', l.finished_at) - date_part('epoch', greatest(l.created_at, l.send_at)), 0) AS since_notify_s
