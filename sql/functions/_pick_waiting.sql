-- Notifications that wait, from a cursor on, at most `looks` of them; says of each whether it matches the filter.
--   phase 0  PENDING, in the order they are due    Index: notification_log_due
--   phase 1  live rows, by id                       Index: outbox_pkey, notification_log_pkey
-- What a producer releases while phase 0 runs is found in phase 1. There the cursor is the id alone: `at` says nothing.
CREATE OR REPLACE FUNCTION outboxd._pick_waiting(filter jsonb, upto timestamptz, phase smallint, after_at timestamptz, after_id bigint,
                                                 looks integer)
    RETURNS TABLE (id bigint, at timestamptz, matches boolean)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    f      record;
    lowest timestamptz;
BEGIN
    SELECT * INTO f FROM jsonb_to_record(filter) AS r (topic text, since timestamptz, until timestamptz, recipient text);
    lowest := greatest(after_at, coalesce(f.since, '-infinity'));
    IF phase = 0 THEN
        RETURN QUERY
            SELECT l.id, l.due_at,
                   l.created_at <= upto AND (f.topic IS NULL OR l.topic = f.topic) AND (f.recipient IS NULL OR l.recipient = f.recipient)
              FROM outboxd.notification_log l
             WHERE l.due_at >= lowest AND l.due_at < coalesce(f.until, 'infinity') AND (l.due_at, l.id) > (after_at, after_id)
             ORDER BY l.due_at, l.id LIMIT looks;
    ELSE
        RETURN QUERY
            SELECT o.id, '-infinity'::timestamptz,
                   l.created_at <= upto AND NOT o.cancel AND (f.topic IS NULL OR l.topic = f.topic) AND (f.recipient IS NULL OR l.recipient = f.recipient)
                   AND l.send_at >= coalesce(f.since, '-infinity') AND l.send_at < coalesce(f.until, 'infinity')
              FROM (SELECT w.id, w.cancel FROM outboxd.outbox w WHERE w.id > after_id ORDER BY w.id LIMIT looks) o
              JOIN outboxd.notification_log l ON l.id = o.id
             ORDER BY o.id;
    END IF;
END $$;
