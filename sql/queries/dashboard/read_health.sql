-- The rows of the view `health`, worst first, and what its buttons need: what is paused, what is held, in the order in
-- which the view names it, which consumer groups lack events. Each list is bounded; of what is paused or held it is told
-- how many more there are.
-- Parameters: none. Locks: none. Index: see the views; channel_state_pkey.
SELECT json_build_object(
    'checks', (SELECT json_agg(h ORDER BY array_position(ARRAY['critical', 'warn', 'ok'], h.level)) FROM outboxd.health h),
    'paused_topics_more', (SELECT greatest(count(*) - 10, 0) FROM outboxd.topic p WHERE p.paused_at IS NOT NULL),
    'paused_topics', (SELECT json_agg(t.name ORDER BY t.name) FROM (
        SELECT p.name FROM outboxd.topic p WHERE p.paused_at IS NOT NULL ORDER BY p.name LIMIT 10) t),
    'paused_channels_more', (SELECT greatest(count(*) - 10, 0) FROM outboxd.channel_state h WHERE h.paused_at IS NOT NULL),
    'paused_channels', (SELECT json_agg(c.channel ORDER BY c.channel) FROM (
        SELECT h.channel FROM outboxd.channel_state h WHERE h.paused_at IS NOT NULL ORDER BY h.channel LIMIT 10) c),
    'paused_schedules_more', (SELECT greatest(count(*) - 10, 0) FROM outboxd.schedule p WHERE p.paused_at IS NOT NULL),
    'paused_schedules', (SELECT json_agg(s.name ORDER BY s.name) FROM (
        SELECT p.name FROM outboxd.schedule p WHERE p.paused_at IS NOT NULL ORDER BY p.name LIMIT 10) s),
    'held', (SELECT json_agg(c) FROM (
        SELECT h.channel, coalesce(h.origin, '') AS origin FROM outboxd.channel_health h WHERE h.circuit <> 'closed'
         ORDER BY h.origin IS NOT NULL, h.waiting DESC, h.channel COLLATE "C", h.origin COLLATE "C" LIMIT 5) c),
    'held_more', (SELECT greatest(count(*) - 5, 0) FROM outboxd.channel_state h WHERE h.reason <> 'retry_after'),
    'cut', (SELECT json_agg(c) FROM (
        SELECT g.topic, g.name, g.cut_from FROM outboxd.event_group g WHERE g.cut_at IS NOT NULL AND g.cut_from IS NOT NULL
         ORDER BY g.cut_at LIMIT 3) c)) AS page
