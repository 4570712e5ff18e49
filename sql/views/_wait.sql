-- Why each notification waits that has not ended: one row each, the one reason that holds it now. `stuck`, `waiting`,
-- outbox_lag, channel_health and why() say what stands here, so that they say the same.
--
--   PENDING     not due yet · waiting for a producer · never released (10 s)
--   ready       topic paused · no route · channel paused · provider asked to wait · circuit open · waiting for retry ·
--               at its limit · waiting for the relay · never published (10 s)
--   blocked     waiting behind key; the first of its key: waiting for the relay · never published (10 s)
--   published   in the queue · at its limit · published without progress (1 min; at a limit 10 min, or ten times as long
--               as one call has to wait for the next)
--   processing  being sent · lease expired (5 s)
--   copied      came with a copy (see origin), whatever it was there
--
-- What its URL names is known once it was put back for it (`waits_for`). `origin`: the one that holds it, '' if its
-- channel does as a whole. A limit is known while an instance reports that it is reached. `is_lag`: it could be in the
-- queue and is not, since `lag_since`, or if that is NULL since it was to be sent. What waits for a limit is not lag.
--
-- Four plain parts without LIMIT, aggregate or window, so that a condition on id is a probe of each. A reason is found
-- once a row, however often it is spoken of, because clock_timestamp() keeps the planner from copying it. What is looked
-- up in the log stands in scalar subqueries, so that who does not ask for it does not pay. Whether a row waits behind its
-- key is asked of the row before it: one step, however many of the key have ended whose entries a long transaction keeps.
-- Only the first of a key passes them, and asks who has the turn.
-- Locks: none. Index: outbox_pkey, notification_log_pkey, notification_log_due, a_key_has_at_most_one_live_row,
-- outbox_key, topic_pkey, channel_state_pkey; those of _live.
CREATE OR REPLACE VIEW outboxd._wait AS
SELECT j.id, j.topic, j.state, j.reason, j.channel, j.origin, j.attempts, j.instance, j.ordering_key,
       CASE j.reason WHEN 'at its limit' THEN j.limited_by END AS limited_by, CASE j.reason WHEN 'at its limit' THEN j.per_second END AS per_second, j.until,
       CASE j.reason WHEN 'in the queue' THEN false WHEN 'being sent' THEN false
            WHEN 'at its limit' THEN j.published_at < now() - interval '10 s' ELSE true END AS is_late,
       false AS is_lag,
       CASE j.reason WHEN 'lease expired' THEN j.until ELSE j.published_at END AS since,
       NULL::timestamptz AS lag_since, j.seq
  FROM (SELECT o.id, o.topic, o.state::text AS state, o.channel, NULL::text AS origin, o.attempts, o.instance, o.ordering_key, o.published_at, o.seq,
               CASE o.state WHEN 'processing' THEN o.lease_until END AS until, o.limited_by, o.per_second,
               CASE WHEN o.state = 'processing' THEN CASE WHEN o.lease_until < clock_timestamp() - interval '5 s' THEN 'lease expired' ELSE 'being sent' END
                    WHEN o.published_at < now() - greatest(interval '10 min', 10 / nullif(o.per_second, 0) * interval '1 s') THEN 'published without progress'
                    WHEN o.limited_by IS NOT NULL THEN 'at its limit'
                    WHEN o.published_at < now() - interval '1 min' THEN 'published without progress'
                    ELSE 'in the queue' END AS reason
          FROM outboxd._live o WHERE o.state IN ('processing', 'published')) j
UNION ALL
SELECT j.id, j.topic, j.state, j.reason, j.channel, j.origin, j.attempts, NULL, j.ordering_key,
       CASE j.reason WHEN 'at its limit' THEN j.limited_by END, CASE j.reason WHEN 'at its limit' THEN j.per_second END,
       CASE j.reason WHEN 'provider asked to wait' THEN j.held_until WHEN 'circuit open' THEN j.held_until WHEN 'waiting for retry' THEN j.retry_at END,
       CASE j.reason WHEN 'waiting for retry' THEN false WHEN 'waiting for the relay' THEN false WHEN 'never published' THEN true
            WHEN 'waiting behind key' THEN (SELECT greatest(l.created_at, l.send_at) FROM outboxd.notification_log l WHERE l.id = j.id) < now() - interval '1 min'
            WHEN 'no route' THEN (SELECT greatest(l.created_at, l.send_at) FROM outboxd.notification_log l WHERE l.id = j.id) < now() - interval '5 s'
            WHEN 'at its limit' THEN (SELECT greatest(l.created_at, l.send_at) FROM outboxd.notification_log l WHERE l.id = j.id) < now() - interval '10 s'
            ELSE true END,
       j.reason IN ('waiting for the relay', 'never published') AND (j.retry_at > now()) IS NOT TRUE,
       greatest(j.paused_at, CASE WHEN j.retry_at <= now() THEN j.retry_at
                ELSE (SELECT greatest(l.created_at, l.send_at) FROM outboxd.notification_log l WHERE l.id = j.id) END),
       greatest(j.retry_at, j.resumed_at), j.seq
  FROM (SELECT o.id, o.topic, o.state::text AS state, o.channel, CASE WHEN h.channel IS NULL THEN o.waits_for ELSE '' END AS origin,
               o.attempts, o.ordering_key, o.retry_at, o.seq, t.paused_at, o.limited_by, o.per_second,
               CASE WHEN t.resumed_at > (SELECT greatest(l.created_at, l.send_at) FROM outboxd.notification_log l WHERE l.id = o.id) THEN t.resumed_at END AS resumed_at,
               CASE WHEN h.reason IS NULL THEN e.held_until ELSE h.held_until END AS held_until,
               CASE
               WHEN o.state = 'blocked' AND (
                    (SELECT v.id FROM outboxd.outbox v WHERE v.topic = o.topic AND v.ordering_key = o.ordering_key AND v.seq < o.seq
                      ORDER BY v.topic DESC, v.ordering_key DESC, v.seq DESC LIMIT 1) IS NOT NULL
                    OR (SELECT v.id FROM outboxd.outbox v WHERE v.topic = o.topic AND v.ordering_key = o.ordering_key AND v.has_turn LIMIT 1) IS NOT NULL)
                    THEN 'waiting behind key'
               WHEN t.paused_at IS NOT NULL THEN 'topic paused'
               WHEN o.is_routeless THEN 'no route'
               WHEN h.paused_at IS NOT NULL THEN 'channel paused'
               WHEN o.attempts > 0 AND o.waits_for IS NULL AND o.retry_at > greatest(now(), h.held_until) THEN 'waiting for retry'
               WHEN coalesce(h.reason, e.reason) = 'retry_after' THEN 'provider asked to wait'
               WHEN coalesce(h.reason, e.reason) IS NOT NULL THEN 'circuit open'
               WHEN o.limited_by IS NOT NULL OR o.waits_for IS NOT NULL AND o.retry_at > now() THEN 'at its limit'
               WHEN coalesce(o.retry_at, (SELECT greatest(l.created_at, l.send_at) FROM outboxd.notification_log l WHERE l.id = o.id))
                    < clock_timestamp() - interval '10 s' THEN 'never published'
               ELSE 'waiting for the relay' END AS reason
          FROM outboxd._live o
          LEFT JOIN outboxd.topic t ON t.name = o.topic
          -- As a whole, and its origin: while they are held.
          LEFT JOIN outboxd.channel_state h ON h.channel = o.channel AND h.origin = ''
                AND (h.paused_at IS NOT NULL OR h.reason <> 'retry_after' OR h.held_until > now())
          LEFT JOIN outboxd.channel_state e ON e.channel = o.channel AND e.origin = o.waits_for AND o.waits_for <> ''
                AND (e.reason <> 'retry_after' OR e.held_until > now())
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
