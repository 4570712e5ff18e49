-- Every channel, and every origin of it that was called lately or is held, with the topics whose routes name it.
-- Parameters: none. Locks: none. Index: see the view; 200 rows at most.
SELECT json_build_object(
    'channels', (SELECT json_agg(c ORDER BY c.channel, c.origin NULLS FIRST) FROM (
        SELECT h.*, (SELECT json_agg(r.topic ORDER BY r.topic) FROM (
                         SELECT u.topic FROM outboxd.route u WHERE u.channel = h.channel ORDER BY u.topic LIMIT 20) r) AS topics
          FROM outboxd.channel_health h
         ORDER BY h.circuit <> 'closed' DESC, h.paused DESC, h.origin IS NOT NULL, h.channel, h.origin LIMIT 200) c)) AS page
