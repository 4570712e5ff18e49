-- One batch of what is to be done about a copy, by whichever instance or operator comes first. Answers as _origin_work().
--
-- Setting aside: live rows leave the outbox for `copied`, then PENDING ones become QUEUED, which takes them out of what is
-- searched for. Rows that another's open transaction has locked are taken once it ends. Then they wait.
-- Returning: in the order of their positions, so that a key's rows keep theirs, then what was PENDING in the order of its
-- time. Epochs go up: messages of the time before are stale. A call that was under way in the original has an unknown
-- outcome here.
-- Canceling: their records say why.
-- Interleavings: the row of origin is locked, so batches come one after the other, and the phase cannot change meanwhile;
-- _cancel() locks it too while there is a copy. Instances publish, release and claim nothing up to log_through while it is
-- set aside.
-- Locks: the row of origin, skipped if another holds it; the rows of the batch; what _admit() locks.
-- Index: outbox_pkey, notification_log_due, copied_order.
CREATE OR REPLACE FUNCTION outboxd._step_origin(rows_max integer DEFAULT 2000) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    o      outboxd.origin;
    batch  record;
    topics text[];
    keys   text[];
BEGIN
    SELECT g.* INTO o FROM outboxd.origin g FOR UPDATE SKIP LOCKED;
    IF NOT FOUND OR o.phase IN ('own', 'waiting') THEN
        RETURN outboxd._origin_work();
    END IF;
    IF o.phase = 'setting aside' AND NOT o.is_past_outbox THEN
        WITH taken AS (
            DELETE FROM outboxd.outbox w WHERE w.ctid = ANY (ARRAY(
                SELECT f.ctid FROM outboxd.outbox f WHERE f.id > o.position AND f.id <= o.log_through
                 ORDER BY f.id LIMIT rows_max FOR UPDATE SKIP LOCKED))
            RETURNING w.*
        ), kept AS (
            INSERT INTO outboxd.copied (id, seq, retry_at, epoch, attempts, instance, route_step, channel_attempts, state, cancel, topic, ordering_key)
            SELECT t.id, t.seq, t.retry_at, t.epoch, t.attempts, t.instance, t.route_step, t.channel_attempts, t.state, t.cancel, t.topic,
                   t.ordering_key FROM taken t
        )
        SELECT count(*) AS rows, coalesce(max(t.id), 0) AS last INTO batch FROM taken t;
        UPDATE outboxd.origin
           SET position = batch.last,
               is_past_outbox = batch.rows = 0 AND NOT EXISTS (SELECT FROM outboxd.outbox f WHERE f.id <= o.log_through);
    ELSIF o.phase = 'setting aside' THEN
        WITH found AS MATERIALIZED (
            SELECT f.ctid, f.topic, f.due_at, f.id FROM outboxd.notification_log f
             WHERE f.due_at IS NOT NULL AND f.id <= o.log_through AND (f.topic, f.due_at, f.id) > (o.position_topic, o.position_at, o.position)
             ORDER BY f.topic, f.due_at, f.id LIMIT rows_max FOR UPDATE SKIP LOCKED
        ), taken AS (
            UPDATE outboxd.notification_log l SET status = 'QUEUED'
             WHERE l.ctid = ANY (ARRAY(SELECT f.ctid FROM found f)) AND l.status = 'PENDING'
            RETURNING l.id, l.send_at, l.epoch, l.attempts, l.topic, l.ordering_key
        ), kept AS (
            INSERT INTO outboxd.copied (id, due_at, epoch, attempts, route_step, channel_attempts, cancel, topic, ordering_key)
            SELECT t.id, t.send_at, t.epoch, t.attempts, 0, 0, false, t.topic, t.ordering_key FROM taken t
        )
        SELECT f.topic, f.due_at, f.id INTO batch FROM found f ORDER BY f.topic DESC, f.due_at DESC, f.id DESC LIMIT 1;
        UPDATE outboxd.origin
           SET position_topic = coalesce(batch.topic, ''), position_at = coalesce(batch.due_at, '-infinity'), position = coalesce(batch.id, 0),
               phase = CASE WHEN batch.id IS NOT NULL OR EXISTS (
                                 SELECT FROM outboxd.notification_log f WHERE f.due_at IS NOT NULL AND f.id <= o.log_through) THEN phase
                            WHEN adopted_as = 'same' THEN 'returning' WHEN adopted_as = 'new' THEN 'canceling' ELSE 'waiting' END;
    ELSIF o.phase = 'returning' THEN
        WITH back AS (
            DELETE FROM outboxd.copied c WHERE c.ctid = ANY (ARRAY(
                SELECT f.ctid FROM outboxd.copied f ORDER BY f.seq, f.due_at, f.id LIMIT rows_max))
            RETURNING c.*
        ), unknown AS (
            INSERT INTO outboxd.attempt (notification_id, token, number, instance, outcome, error)
            SELECT b.id, b.epoch, b.attempts, b.instance, 'unknown', 'the database was copied or moved while the call was under way'
              FROM back b WHERE b.state = 'processing'
        ), queued AS (
            INSERT INTO outboxd.outbox (id, seq, retry_at, epoch, attempts, route_step, channel_attempts, state, topic, ordering_key)
            SELECT b.id, b.seq, CASE WHEN b.ordering_key IS NULL THEN greatest(b.retry_at, clock_timestamp()) END, b.epoch + 1, b.attempts,
                   b.route_step, b.channel_attempts, CASE WHEN b.ordering_key IS NULL THEN 'ready' ELSE 'blocked' END::outboxd.state,
                   b.topic, b.ordering_key
              FROM back b WHERE b.state IS NOT NULL AND NOT b.cancel
            RETURNING topic, ordering_key
        ), pending AS (
            UPDATE outboxd.notification_log l SET status = 'PENDING'
             WHERE l.id = ANY (ARRAY(SELECT b.id FROM back b WHERE b.state IS NULL)) AND l.status = 'QUEUED'
        ), canceled AS (
            UPDATE outboxd.notification_log l
               SET status = 'CANCELED', finished_at = clock_timestamp(), epoch = b.epoch, attempts = b.attempts
              FROM back b WHERE l.id = b.id AND b.cancel AND l.status = 'QUEUED'
        )
        SELECT array_agg(q.topic), array_agg(q.ordering_key) INTO topics, keys FROM queued q WHERE q.ordering_key IS NOT NULL;
        IF keys IS NOT NULL THEN
            PERFORM outboxd._admit(topics, keys);
        END IF;
        PERFORM outboxd._ring();
    ELSE
        WITH gone AS (
            DELETE FROM outboxd.copied c WHERE c.ctid = ANY (ARRAY(
                SELECT f.ctid FROM outboxd.copied f ORDER BY f.seq, f.due_at, f.id LIMIT rows_max))
            RETURNING c.id, c.epoch, c.attempts
        )
        UPDATE outboxd.notification_log l
           SET status = 'CANCELED', finished_at = clock_timestamp(), epoch = g.epoch, attempts = g.attempts,
               error = 'came with a copy of another installation; canceled by outboxd adopt --new'
          FROM gone g WHERE l.id = g.id AND l.status = 'QUEUED';
    END IF;
    IF o.phase IN ('returning', 'canceling') AND NOT EXISTS (SELECT FROM outboxd.copied) THEN
        UPDATE outboxd.origin SET phase = 'own', schedules_through = 0;
        UPDATE outboxd.bulk_action b
           SET next_at = clock_timestamp(), ended_at = CASE WHEN o.phase = 'canceling' THEN clock_timestamp() END,
               stopped_by = CASE WHEN o.phase = 'canceling' THEN 'outboxd adopt --new' END
         WHERE b.ended_at IS NULL AND b.next_at = 'infinity';
    END IF;
    RETURN outboxd._origin_work();
END $$;
