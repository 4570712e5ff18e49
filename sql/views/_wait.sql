-- Why each notification waits that has not ended: one row each, the one reason that holds it now. `stuck`, `waiting`,
-- outbox_lag and why() say what stands here, so that they say the same.
--
--   PENDING     not due yet · waiting for a producer · never released (10 s)
--   ready       topic paused · no route · channel paused · provider asked to wait · circuit open · waiting for retry ·
--               at its limit · waiting for the relay · never published (10 s)
--   blocked     waiting behind key; the first of its key: waiting for the relay · never published (10 s)
--   published   in the queue · at its limit · published without progress (1 min; 10 min at a limit)
--   processing  being sent · lease expired (5 s)
--   copied      came with a copy (see origin), whatever it was there
--
-- The channel of a row is its route's at its position. What its URL names is known once it was put back for it
-- (`waits_for`); a channel's limit is known while an instance reports that it is reached. `is_lag`: it could be in the
-- queue and is not, since `lag_since`, or if that is NULL since it was to be sent. What waits for a limit is not lag,
-- except for the instances' own: too few calls at once. What was put back for that has waited since it was to be sent, or
-- after a failure since it was last in the queue.
--
-- Four plain parts without LIMIT, aggregate or window, so that a condition on id is a probe of each. A reason is found
-- once a row, however often it is spoken of, because clock_timestamp() keeps the planner from copying it. What is looked
-- up in the log stands in scalar subqueries, so that who does not ask for it does not pay.
-- Locks: none. Index: outbox_pkey, notification_log_pkey, notification_log_due, a_key_has_at_most_one_live_row,
-- outbox_key, route_pkey, topic_pkey, channel_state_pkey.
CREATE OR REPLACE VIEW outboxd._wait AS
SELECT j.id, j.topic, j.state, j.reason, j.channel, j.origin, j.attempts, j.instance, j.ordering_key, j.limited_by, j.per_second, j.until,
       CASE j.reason WHEN 'in the queue' THEN false WHEN 'being sent' THEN false
            WHEN 'at its limit' THEN j.published_at < now() - interval '10 s' ELSE true END AS is_late,
       false AS is_lag,
       CASE j.reason WHEN 'lease expired' THEN j.until ELSE j.published_at END AS since,
       NULL::timestamptz AS lag_since, j.seq
  FROM (SELECT o.id, o.topic, o.state::text AS state, coalesce(own.channel, fallback.channel) AS channel, NULL::text AS origin,
               o.attempts, o.instance, o.ordering_key, o.published_at, o.seq,
               CASE o.state WHEN 'processing' THEN o.lease_until END AS until,
               CASE o.state WHEN 'published' THEN w.limits -> coalesce(own.channel, fallback.channel) ->> 0 END AS limited_by,
               (w.limits -> coalesce(own.channel, fallback.channel) ->> 1)::float8 AS per_second,
               CASE WHEN o.state = 'processing' THEN CASE WHEN o.lease_until < clock_timestamp() - interval '5 s' THEN 'lease expired' ELSE 'being sent' END
                    WHEN o.published_at < now() - interval '10 min' THEN 'published without progress'
                    WHEN w.limits ? coalesce(own.channel, fallback.channel) THEN 'at its limit'
                    WHEN o.published_at < now() - interval '1 min' THEN 'published without progress'
                    ELSE 'in the queue' END AS reason
          FROM outboxd._routed w CROSS JOIN outboxd.outbox o
          LEFT JOIN outboxd.route own ON own.topic = o.topic AND own.position = o.route_step
          LEFT JOIN outboxd.route fallback ON own.topic IS NULL AND fallback.topic = 'default' AND fallback.position = o.route_step
         WHERE o.state IN ('processing', 'published')) j
UNION ALL
SELECT j.id, j.topic, j.state, j.reason, j.channel, j.origin, j.attempts, NULL, j.ordering_key,
       CASE WHEN j.reason = 'at its limit' THEN coalesce(j.limited_by, CASE WHEN j.origin <> '' THEN 'max_in_flight_per_origin' END) END,
       CASE WHEN j.reason = 'at its limit' THEN j.per_second END,
       CASE j.reason WHEN 'provider asked to wait' THEN j.held_until WHEN 'circuit open' THEN j.held_until
            WHEN 'waiting for retry' THEN j.retry_at WHEN 'at its limit' THEN j.retry_at END,
       CASE j.reason WHEN 'waiting for retry' THEN false WHEN 'waiting for the relay' THEN false WHEN 'never published' THEN true
            WHEN 'waiting behind key' THEN (SELECT greatest(l.created_at, l.send_at) FROM outboxd.notification_log l WHERE l.id = j.id) < now() - interval '1 min'
            WHEN 'no route' THEN (SELECT greatest(l.created_at, l.send_at) FROM outboxd.notification_log l WHERE l.id = j.id) < now() - interval '5 s'
            WHEN 'at its limit' THEN (SELECT greatest(l.created_at, l.send_at) FROM outboxd.notification_log l WHERE l.id = j.id) < now() - interval '10 s'
            ELSE true END,
       CASE j.reason WHEN 'waiting for the relay' THEN true WHEN 'never published' THEN true
            WHEN 'at its limit' THEN j.limited_by IS NOT DISTINCT FROM 'concurrency' ELSE false END,
       greatest(j.paused_at, CASE WHEN j.retry_at <= now() THEN j.retry_at
                ELSE (SELECT greatest(l.created_at, l.send_at) FROM outboxd.notification_log l WHERE l.id = j.id) END),
       CASE WHEN j.waits_for IS NULL OR j.retry_at <= now() AND j.limited_by IS DISTINCT FROM 'concurrency' THEN greatest(j.retry_at, j.resumed_at)
            WHEN j.attempts > 0 THEN greatest(j.published_at, j.resumed_at) ELSE j.resumed_at END, j.seq
  FROM (SELECT o.id, o.topic, o.state::text AS state, coalesce(own.channel, fallback.channel) AS channel, o.waits_for AS origin,
               o.attempts, o.ordering_key, o.retry_at, o.waits_for, o.published_at, o.seq, t.paused_at,
               CASE WHEN t.resumed_at > (SELECT greatest(l.created_at, l.send_at) FROM outboxd.notification_log l WHERE l.id = o.id) THEN t.resumed_at END AS resumed_at,
               w.limits -> coalesce(own.channel, fallback.channel) ->> 0 AS limited_by,
               (w.limits -> coalesce(own.channel, fallback.channel) ->> 1)::float8 AS per_second,
               CASE WHEN h.reason <> 'retry_after' OR h.held_until > now() THEN h.held_until ELSE e.held_until END AS held_until,
               CASE
               WHEN o.state = 'blocked' AND (
                    SELECT v.id FROM outboxd.outbox v
                     WHERE v.topic = o.topic AND v.ordering_key = o.ordering_key AND (v.has_turn OR v.seq < o.seq) LIMIT 1) IS NOT NULL
                    THEN 'waiting behind key'
               WHEN t.paused_at IS NOT NULL THEN 'topic paused'
               WHEN NOT w.has_default AND (NOT w.published && ARRAY[o.topic, 'default'] OR NOT w.called && ARRAY[o.topic, 'default']) THEN 'no route'
               WHEN h.paused_at IS NOT NULL THEN 'channel paused'
               WHEN o.attempts > 0 AND o.waits_for IS NULL AND o.retry_at > greatest(now(), h.held_until) THEN 'waiting for retry'
               WHEN h.reason = 'retry_after' AND h.held_until > now() OR e.reason = 'retry_after' AND e.held_until > now() THEN 'provider asked to wait'
               WHEN h.reason <> 'retry_after' OR e.reason <> 'retry_after' THEN 'circuit open'
               WHEN o.waits_for IS NOT NULL AND o.retry_at > now() THEN 'at its limit'
               WHEN w.limits ? coalesce(own.channel, fallback.channel)
                    AND (o.waits_for <> '' OR w.limits -> coalesce(own.channel, fallback.channel) ->> 0 <> 'max_in_flight_per_origin') THEN 'at its limit'
               WHEN coalesce(o.retry_at, (SELECT greatest(l.created_at, l.send_at) FROM outboxd.notification_log l WHERE l.id = o.id))
                    < clock_timestamp() - interval '10 s' THEN 'never published'
               ELSE 'waiting for the relay' END AS reason
          FROM outboxd._routed w CROSS JOIN outboxd.outbox o
          LEFT JOIN outboxd.topic t ON t.name = o.topic
          LEFT JOIN outboxd.route own ON own.topic = o.topic AND own.position = o.route_step
          LEFT JOIN outboxd.route fallback ON own.topic IS NULL AND fallback.topic = 'default' AND fallback.position = o.route_step
          LEFT JOIN outboxd.channel_state h ON h.channel = coalesce(own.channel, fallback.channel) AND h.origin = ''
          LEFT JOIN outboxd.channel_state e ON e.channel = coalesce(own.channel, fallback.channel) AND e.origin = o.waits_for AND o.waits_for <> ''
         WHERE o.state IN ('ready', 'blocked')) j
UNION ALL
SELECT l.id, l.topic, 'pending',
       CASE WHEN l.due_at > now() THEN 'not due yet' WHEN l.due_at < now() - interval '10 s' THEN 'never released' ELSE 'waiting for a producer' END,
       NULL, NULL, l.attempts, NULL, l.ordering_key, NULL, NULL, CASE WHEN l.due_at > now() THEN l.due_at END,
       l.due_at < now() - interval '10 s', false, l.due_at, NULL, l.id
  FROM outboxd.notification_log l WHERE l.due_at IS NOT NULL
UNION ALL
SELECT c.id, c.topic, 'copied', 'came with a copy', NULL, NULL, c.attempts, NULL, c.ordering_key, NULL, NULL, NULL, true, false,
       (SELECT o.noticed_at FROM outboxd.origin o), NULL, c.seq
  FROM outboxd.copied c;
