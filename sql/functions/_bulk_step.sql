-- One batch of the oldest open bulk action. A row: it was at work (changed may be 0: it waits for its last batch to be
-- sent). No row: there is none, or another instance is at it.
--
-- Retried rows share the queue with live traffic. So the next batch waits until nine tenths of the last one are out of
-- the queue, and is as big as can be expected to take 12 ms, by how long the last one took: live traffic finds at most
-- that much in front of it, on a fast machine and on a slow one. Rows that do not even get into the queue within a
-- second (their topic is paused, their channel held) slow nobody down and are not waited for; nor are canceled and
-- discarded ones. An error is written down and the action rests for 5 s, so that it is seen and does not stop the
-- others.
-- Locks: the action's row, skipped if another holds it; the rows changed. Index: bulk_action_open, outbox_pkey.
CREATE OR REPLACE FUNCTION outboxd._bulk_step() RETURNS TABLE (bulk_id bigint, changed bigint, ended boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    scan_max  integer := 2000;
    batch_max integer := 500;
    since     interval;
    waiting   record;
    b         outboxd.bulk_action;
    step      record;
BEGIN
    SELECT a.* INTO b FROM outboxd.bulk_action a
     WHERE a.ended_at IS NULL AND a.next_at <= clock_timestamp() ORDER BY a.id LIMIT 1 FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    bulk_id := b.id;
    changed := 0;
    ended := false;
    IF b.action = 'retry' THEN
        since := clock_timestamp() - b.stepped_at;
        SELECT count(*) FILTER (WHERE o.state = 'published') * 10 > cardinality(b.batch) AS in_queue,
               count(*) FILTER (WHERE o.state IN ('ready', 'blocked') AND (o.retry_at IS NULL OR o.retry_at <= clock_timestamp())) * 4
                   > cardinality(b.batch) AS before_it
          INTO waiting FROM outboxd.outbox o WHERE o.id = ANY (b.batch);
        IF waiting.in_queue OR (waiting.before_it AND since < interval '1 s') THEN
            RETURN NEXT;
            RETURN;
        END IF;
        batch_max := CASE WHEN since IS NULL OR waiting.before_it THEN 100
                          ELSE greatest(20, least(500, 2 * cardinality(b.batch),
                                                  cardinality(b.batch) * 0.012 / extract(epoch FROM since))) END;
        -- Where little matches, more is scanned.
        scan_max := CASE WHEN since IS NOT NULL AND b.batch = '{}' THEN 2000 ELSE 2 * batch_max END;
    END IF;
    BEGIN
        WITH scanned AS (
            SELECT p.part, p.at, p.id, p.matches, count(*) OVER () AS rows_scanned,
                   count(*) FILTER (WHERE p.matches) OVER (ORDER BY p.part, p.at, p.id) AS nth
              FROM (SELECT d.* FROM outboxd._pick_dead(b.filter, b.started_at, b.cursor_at, b.cursor_id, scan_max) d
                     WHERE b.action IN ('retry', 'discard')
                    UNION ALL
                    SELECT w.* FROM outboxd._pick_waiting(b.filter, b.started_at, b.phase, b.cursor_part, b.cursor_at, b.cursor_id,
                                                          scan_max) w
                     WHERE b.action = 'cancel') p
        ), taken AS (
            SELECT * FROM scanned k WHERE k.nth <= least(batch_max, b.rows_max - b.done)
        )
        SELECT coalesce(array_agg(t.id) FILTER (WHERE t.matches), '{}') AS ids,
               (array_agg(t.part ORDER BY t.part DESC, t.at DESC, t.id DESC))[1] AS part,
               (array_agg(t.at ORDER BY t.part DESC, t.at DESC, t.id DESC))[1] AS at,
               (array_agg(t.id ORDER BY t.part DESC, t.at DESC, t.id DESC))[1] AS id,
               count(*) = coalesce(max(t.rows_scanned), 0) AND count(*) < scan_max AS is_last
          INTO step FROM taken t;
        changed := CASE b.action WHEN 'retry' THEN outboxd._requeue(step.ids) WHEN 'discard' THEN outboxd._discard(step.ids)
                                 ELSE outboxd._cancel(step.ids) END;
        ended := (step.is_last AND (b.action <> 'cancel' OR b.phase = 1)) OR b.done + changed >= b.rows_max IS TRUE;
        UPDATE outboxd.bulk_action a
           SET done = a.done + changed, batch = step.ids, stepped_at = clock_timestamp(), next_at = clock_timestamp(), error = NULL,
               phase = CASE WHEN step.is_last AND b.action = 'cancel' THEN 1 ELSE a.phase END,
               cursor_part = CASE WHEN step.is_last THEN '' ELSE step.part END,
               cursor_at = CASE WHEN step.is_last THEN '-infinity' ELSE step.at END,
               cursor_id = CASE WHEN step.is_last THEN 0 ELSE step.id END,
               ended_at = CASE WHEN ended THEN clock_timestamp() END
         WHERE a.id = b.id;
    EXCEPTION WHEN OTHERS THEN
        changed := 0;
        ended := false;
        UPDATE outboxd.bulk_action a SET error = SQLERRM, next_at = clock_timestamp() + interval '5 s' WHERE a.id = b.id;
    END;
    IF ended THEN
        INSERT INTO outboxd.audit (actor, token, action, subject, affected, detail)
        VALUES (b.actor, b.token, 'bulk_' || b.action || '_finished', b.id::text, b.done + changed, jsonb_build_object('filter', b.filter));
    END IF;
    RETURN NEXT;
END $$;
