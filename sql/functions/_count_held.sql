-- Counts what waits for each channel that is held, and for each origin of one: ready rows, by the channel at their position
-- of their route and the origin that they say they wait for. One pass over the live rows, and only while something is held.
-- Readers may call it: what is held is told by its place in channel_state, which says nothing of an origin.
-- A function and not a view, for the reason given with _count_active().
-- Locks: none. Index: none: the live rows are read whole.
CREATE OR REPLACE FUNCTION outboxd._count_held() RETURNS TABLE (held tid, waiting bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER ROWS 20 SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM outboxd.channel_state h WHERE h.reason IS NOT NULL OR h.paused_at IS NOT NULL) THEN
        RETURN;
    END IF;
    RETURN QUERY
        WITH ready AS (
            SELECT o.topic, o.route_step, o.waits_for, count(*) AS n FROM outboxd.outbox o WHERE o.state = 'ready' GROUP BY 1, 2, 3
        ), meant AS (
            SELECT r.channel, w.waits_for, sum(w.n) AS n
              FROM (SELECT w.*, EXISTS (SELECT FROM outboxd.route o WHERE o.topic = w.topic) AS is_routed FROM ready w) w
              JOIN outboxd.route r ON r.topic = CASE WHEN w.is_routed THEN w.topic ELSE 'default' END AND r.position = w.route_step
             GROUP BY 1, 2
        )
        SELECT h.ctid, m.n::bigint
          FROM (SELECT m.channel, '' AS origin, sum(m.n) AS n FROM meant m GROUP BY 1
                UNION ALL
                SELECT m.channel, m.waits_for, m.n FROM meant m WHERE m.waits_for <> '') m
          JOIN outboxd.channel_state h ON h.channel = m.channel AND h.origin = m.origin
         WHERE h.reason IS NOT NULL OR h.paused_at IS NOT NULL;
END $$;
