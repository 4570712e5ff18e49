-- Dead letters in the order they failed, from a cursor on, at most `scan_max` of them; says of each whether it matches
-- the filter. Bounded by rows scanned, not by matches, so that a filter that matches little costs no more. `cause` is
-- the class of error by which the dashboard groups (read_dead_groups.sql): "HTTP 410", or the error up to its first
-- colon. Of a 2xx that was not taken for a delivery also the error, whole or up to and with its first colon: what the
-- provider said there tells causes apart. An empty `channel` is none.
-- Index: notification_log_failed.
CREATE OR REPLACE FUNCTION outboxd._pick_dead(filter jsonb, upto timestamptz, after_at timestamptz, after_id bigint, scan_max integer)
    RETURNS TABLE (part text, at timestamptz, id bigint, matches boolean)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    f      record;
    lowest timestamptz;
BEGIN
    SELECT * INTO f FROM jsonb_to_record(filter) AS r (topic text, since timestamptz, until timestamptz, error_like text, channel text,
                                                       http_status smallint, cause text, recipient text, id_max bigint);
    lowest := greatest(after_at, coalesce(f.since, '-infinity'));
    RETURN QUERY
        SELECT ''::text, l.failed_at, l.id,
               (f.topic IS NULL OR l.topic = f.topic) AND (f.error_like IS NULL OR l.error LIKE f.error_like)
               AND (f.channel IS NULL OR coalesce(l.channel, '') = f.channel)
               AND (f.cause IS NULL OR f.cause = coalesce('HTTP ' || l.http_status, nullif(left(split_part(l.error, ':', 1), 120), ''), 'no error')
                    OR l.http_status / 100 = 2 AND f.cause IN (l.error, nullif(left(l.error, strpos(l.error, ':')), '')))
               AND (f.http_status IS NULL OR l.http_status IS NOT DISTINCT FROM f.http_status)
               AND (f.recipient IS NULL OR l.recipient = f.recipient) AND (f.id_max IS NULL OR l.id <= f.id_max)
          FROM outboxd.notification_log l
         WHERE l.failed_at >= lowest AND l.failed_at <= upto AND l.failed_at < coalesce(f.until, 'infinity')
           AND (l.failed_at, l.id) > (after_at, after_id)
         ORDER BY l.failed_at, l.id LIMIT scan_max;
END $$;
