-- The routes in use. A row's channel is that of its position; one whose route became shorter stays at the last, as in the
-- worker: `CASE WHEN position < route_step THEN is_last ELSE position = route_step END`.
-- Locks: none. Index: route_pkey, one probe for each row whose `is_last` is asked for.
CREATE OR REPLACE VIEW outboxd._route AS
SELECT r.topic, r.position, r.channel,
       (SELECT n.position FROM outboxd.route n WHERE n.topic = r.topic AND n.position = r.position + 1) IS NULL AS is_last
  FROM outboxd.route r;
