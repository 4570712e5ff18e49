-- Notifications that wait, from a cursor on, at most `scan_max` of them; says of each whether it matches the filter.
--   phase 0  PENDING, topic by topic (`part`) in the order they are due    Index: notification_log_due
--   phase 1  live rows, by id alone                                        Index: outbox_pkey, notification_log_pkey
-- What a producer releases while phase 0 runs is found in phase 1.
CREATE OR REPLACE FUNCTION outboxd._pick_waiting(filter jsonb, upto timestamptz, phase smallint, after_part text, after_at timestamptz,
                                                 after_id bigint, scan_max integer)
    RETURNS TABLE (part text, at timestamptz, id bigint, matches boolean)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    f record;
BEGIN
    SELECT * INTO f FROM jsonb_to_record(filter) AS r (topic text, since timestamptz, until timestamptz, recipient text, id_max bigint);
    IF phase = 0 AND f.topic IS NOT NULL THEN
        RETURN QUERY
            SELECT l.topic, l.due_at, l.id,
                   l.created_at <= upto AND (f.recipient IS NULL OR l.recipient = f.recipient) AND (f.id_max IS NULL OR l.id <= f.id_max)
              FROM outboxd.notification_log l
             WHERE l.topic = f.topic AND l.due_at >= greatest(after_at, coalesce(f.since, '-infinity'))
               AND l.due_at < coalesce(f.until, 'infinity') AND (l.due_at, l.id) > (after_at, after_id)
             ORDER BY l.topic, l.due_at, l.id LIMIT scan_max;
    ELSIF phase = 0 THEN
        RETURN QUERY
            SELECT l.topic, l.due_at, l.id,
                   l.created_at <= upto AND (f.recipient IS NULL OR l.recipient = f.recipient) AND (f.id_max IS NULL OR l.id <= f.id_max)
                   AND l.due_at >= coalesce(f.since, '-infinity') AND l.due_at < coalesce(f.until, 'infinity')
              FROM outboxd.notification_log l
             WHERE l.due_at IS NOT NULL AND (l.topic, l.due_at, l.id) > (after_part, after_at, after_id)
             ORDER BY l.topic, l.due_at, l.id LIMIT scan_max;
    ELSE
        RETURN QUERY
            SELECT ''::text, '-infinity'::timestamptz, o.id,
                   (l.created_at <= upto AND NOT o.cancel AND (f.topic IS NULL OR o.topic = f.topic)
                    AND (f.recipient IS NULL OR l.recipient = f.recipient) AND (f.id_max IS NULL OR o.id <= f.id_max)
                    AND l.send_at >= coalesce(f.since, '-infinity') AND l.send_at < coalesce(f.until, 'infinity')) IS TRUE
              FROM (SELECT w.id, w.topic, w.cancel FROM outboxd.outbox w WHERE w.id > after_id ORDER BY w.id LIMIT scan_max) o
              -- OFFSET 0 keeps this a probe of the primary key: a join could read the whole history.
              LEFT JOIN LATERAL (
                   SELECT r.created_at, r.send_at, r.recipient FROM outboxd.notification_log r WHERE r.id = o.id OFFSET 0) l ON true
             ORDER BY o.id;
    END IF;
END $$;
