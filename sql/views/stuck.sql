-- What is past its time, and why. Reads the 2,000 oldest rows of the active set and 200 PENDING rows that are
-- overdue, so that it costs the same with any backlog. The channel a row is meant for is its route's at its position.
-- Locks: none. Index: outbox_pkey, notification_log_pkey (one probe for each of the oldest), notification_log_due.
CREATE OR REPLACE VIEW outboxd.stuck AS
WITH oldest AS (
    SELECT o.id, o.topic, l.recipient, o.ordering_key, o.attempts, o.instance, o.state, o.lease_until, o.published_at, o.retry_at,
           greatest(l.created_at, l.send_at) AS wanted_at, t.paused_at, coalesce(own.channel, fallback.channel) AS channel,
           -- Nobody publishes it, or nobody calls for it.
           NOT w.published && ARRAY[o.topic, 'default'] OR NOT w.called && ARRAY[o.topic, 'default'] AS is_routeless
      FROM (SELECT w.* FROM outboxd.outbox w ORDER BY w.id LIMIT 2000) o CROSS JOIN outboxd._routed w
      -- OFFSET 0 keeps this a probe of the primary key: a join could read the whole history.
      LEFT JOIN LATERAL (SELECT r.recipient, r.created_at, r.send_at FROM outboxd.notification_log r WHERE r.id = o.id OFFSET 0) l ON true
      LEFT JOIN outboxd.topic t ON t.name = o.topic
      LEFT JOIN outboxd.route own ON own.topic = o.topic AND own.position = o.route_step
      LEFT JOIN outboxd.route fallback ON own.topic IS NULL AND fallback.topic = 'default' AND fallback.position = o.route_step
), judged AS MATERIALIZED (
    SELECT o.id, o.topic, o.recipient, o.ordering_key, o.attempts, o.instance, o.channel,
           CASE o.state WHEN 'processing' THEN o.lease_until WHEN 'published' THEN o.published_at WHEN 'blocked' THEN o.wanted_at
                ELSE greatest(o.paused_at, CASE WHEN o.retry_at <= now() THEN o.retry_at ELSE o.wanted_at END) END AS since,
           CASE WHEN o.state = 'processing' AND o.lease_until < now() - interval '5 s' THEN 'lease expired'
                WHEN o.state = 'blocked' AND o.wanted_at < now() - interval '1 min' THEN 'waiting behind key'
                WHEN o.state = 'published' AND o.published_at < now() - interval '1 min' THEN 'published without progress'
                WHEN o.state <> 'ready' THEN NULL
                WHEN o.paused_at IS NOT NULL THEN 'topic paused'
                WHEN o.is_routeless AND o.wanted_at < now() - interval '5 s' THEN 'no route'
                WHEN h.paused_at IS NOT NULL THEN 'channel paused'
                WHEN h.reason = 'retry_after' AND h.held_until > now() THEN 'provider asked to wait'
                WHEN h.reason <> 'retry_after' THEN 'circuit open'
                WHEN coalesce(o.retry_at, o.wanted_at) < now() - interval '10 s' THEN 'never published' END AS reason
      FROM oldest o LEFT JOIN outboxd.channel_state h ON h.channel = o.channel AND h.origin = ''
), late AS (
    (SELECT j.id, j.topic, j.recipient, j.reason, j.since, j.channel, j.attempts, j.instance,
            CASE WHEN j.reason = 'waiting behind key' THEN j.ordering_key END AS ordering_key
       FROM judged j WHERE j.reason IS NOT NULL
      ORDER BY j.reason IN ('topic paused', 'no route', 'channel paused', 'circuit open', 'provider asked to wait',
                            'waiting behind key'), j.since
      LIMIT 200)
    UNION ALL
    (SELECT l.id, d.topic, l.recipient, 'never released', l.due_at, NULL, l.attempts, NULL, NULL
       FROM outboxd._due d CROSS JOIN LATERAL (
            SELECT w.id, w.recipient, w.due_at, w.attempts FROM outboxd.notification_log w
             WHERE w.topic = d.topic AND w.due_at < now() - interval '10 s' ORDER BY w.due_at LIMIT 200) l
      WHERE d.due_at < now() - interval '10 s' ORDER BY l.due_at LIMIT 200)
)
SELECT s.id, s.topic, CASE WHEN outboxd._sees_all() THEN s.recipient ELSE outboxd._masked(s.recipient) END AS recipient, s.reason, greatest(clock_timestamp() - s.since, '0') AS stuck_for, s.since, s.channel, s.attempts,
       s.instance AS worker, CASE WHEN outboxd._sees_all() THEN s.ordering_key ELSE outboxd._masked(s.ordering_key) END AS ordering_key
  FROM late s WHERE outboxd._planned_for(outboxd._sees_all());

COMMENT ON VIEW outboxd.stuck IS
    'What is past its time and why: of the 2,000 oldest live rows up to 200, the repairable first, and up to 200 overdue '
    'PENDING rows. outboxd.queue_state has the counts.';
COMMENT ON COLUMN outboxd.stuck.id IS 'See outboxd.notifications.id.';
COMMENT ON COLUMN outboxd.stuck.topic IS 'What it is about.';
COMMENT ON COLUMN outboxd.stuck.recipient IS 'As the app gave it; for readers its ends.';
COMMENT ON COLUMN outboxd.stuck.reason IS
    'lease expired; published without progress (1 min); never published (10 s); never released: due, and no producer took it '
    '(10 s); waiting behind key (1 min); topic paused; no route: no running instance has one that '
    'leads its topic anywhere (5 s); channel paused; circuit open; provider asked to wait (Retry-After).';
COMMENT ON COLUMN outboxd.stuck.stuck_for IS 'For how long.';
COMMENT ON COLUMN outboxd.stuck.since IS 'Since when.';
COMMENT ON COLUMN outboxd.stuck.channel IS 'The channel it waits for, by the routes of the instance that started last.';
COMMENT ON COLUMN outboxd.stuck.attempts IS 'Calls to providers so far, all channels.';
COMMENT ON COLUMN outboxd.stuck.worker IS 'The instance that has, or had, claimed it (see outboxd.workers).';
COMMENT ON COLUMN outboxd.stuck.ordering_key IS
    'The key of its topic that it waits behind, if that is the reason: SELECT * FROM outboxd.notifications WHERE topic = … AND ordering_key = …';
