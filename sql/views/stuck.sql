-- What is past its time, and why. Looks at the 2,000 oldest rows of the active set and at 200 PENDING rows that are
-- overdue, so that it costs the same with any backlog. The channel a row is meant for is its route's at its position.
CREATE OR REPLACE VIEW outboxd.stuck AS
WITH oldest AS (
    SELECT o.id, o.lane, CASE WHEN s.seq_to >= o.seq THEN 1 ELSE o.state END AS state,
           CASE WHEN s.seq_to >= o.seq THEN s.reserved_at ELSE o.next_at END AS next_at,
           o.retry_at, o.attempts, o.instance, o.route_step, o.topic, o.recipient
      FROM (SELECT w.* FROM outboxd.outbox w ORDER BY w.id LIMIT 2000) o
      -- A row of a stretch is published.
      LEFT JOIN LATERAL (
           SELECT p.seq_to, p.reserved_at FROM outboxd.publication p
            WHERE o.state = 0 AND o.retry_at IS NULL AND p.lane = o.lane AND p.seq_from <= o.seq
            ORDER BY p.lane DESC, p.seq_from DESC LIMIT 1) s ON true
), placed AS (
    SELECT o.id, o.state, o.attempts, o.instance, o.topic, o.recipient, t.paused_at, o.retry_at, o.next_at,
           coalesce(own.channel, fallback.channel) AS channel
      FROM oldest o
      LEFT JOIN outboxd.topic t ON t.lane = o.lane
      LEFT JOIN outboxd.route own ON own.topic = t.name AND own.position = o.route_step
      LEFT JOIN outboxd.route fallback ON own.topic IS NULL AND fallback.topic = 'default' AND fallback.position = o.route_step
), judged AS MATERIALIZED (
    SELECT p.id, p.attempts, p.instance, p.channel, p.topic, p.recipient,
           CASE WHEN p.state = 2 THEN p.next_at WHEN p.state = 0 AND p.paused_at IS NOT NULL THEN greatest(p.paused_at, p.next_at)
                WHEN p.state = 0 AND p.retry_at <= now() THEN p.retry_at ELSE p.next_at END AS since,
           CASE WHEN p.state = 2 AND p.next_at < now() - interval '5 s' THEN 'lease expired'
                WHEN p.state = 3 AND p.next_at < now() - interval '1 min' THEN 'waiting behind key'
                WHEN p.state = 1 AND p.next_at < now() - interval '1 min' THEN 'published without progress'
                WHEN p.state = 0 AND p.paused_at IS NOT NULL THEN 'topic paused'
                WHEN p.state = 0 AND h.paused_at IS NOT NULL THEN 'channel paused'
                WHEN p.state = 0 AND h.reason = 'retry_after' AND h.held_until > now() THEN 'provider asked to wait'
                WHEN p.state = 0 AND h.reason <> 'retry_after' THEN 'circuit open'
                WHEN p.state = 0 AND coalesce(p.retry_at, p.next_at) < now() - interval '10 s' THEN 'never published' END AS reason
      FROM placed p LEFT JOIN outboxd.channel_hold h ON h.channel = p.channel AND h.origin = ''
), late AS (
    (SELECT j.id, j.reason, j.since, j.attempts, j.instance, j.channel, j.topic, j.recipient FROM judged j WHERE j.reason IS NOT NULL
      ORDER BY j.reason IN ('topic paused', 'channel paused', 'circuit open', 'provider asked to wait', 'waiting behind key'), j.since
      LIMIT 200)
    UNION ALL
    (SELECT l.id, 'never released', l.due_at, l.attempts, NULL, NULL, NULL, NULL
       FROM outboxd._due d CROSS JOIN LATERAL (
            SELECT w.id, w.due_at, w.attempts FROM outboxd.notification_log w
             WHERE w.topic = d.topic AND w.due_at < now() - interval '10 s' ORDER BY w.due_at LIMIT 200) l
      WHERE d.due_at < now() - interval '10 s' ORDER BY l.due_at LIMIT 200)
)
SELECT s.id, coalesce(s.topic, l.topic) AS topic, coalesce(s.recipient, l.recipient) AS recipient, s.reason, greatest(clock_timestamp() - s.since, '0') AS stuck_for, s.since, s.channel, s.attempts,
       s.instance AS worker, l.ordering_key
  FROM late s LEFT JOIN outboxd.notification_log l ON l.id = s.id AND s.topic IS NULL;

COMMENT ON VIEW outboxd.stuck IS 'What is past its time and why: of the 2,000 oldest live rows up to 200, the repairable first, and up to 200 overdue PENDING rows. outboxd.queue_state has the counts.';
COMMENT ON COLUMN outboxd.stuck.id IS 'See outboxd.notifications.id.';
COMMENT ON COLUMN outboxd.stuck.topic IS 'What it is about.';
COMMENT ON COLUMN outboxd.stuck.recipient IS 'As the app gave it.';
COMMENT ON COLUMN outboxd.stuck.reason IS 'lease expired; published without progress (1 min); never published (10 s); never released: due, and no producer took it (10 s); waiting behind key (1 min); topic paused; channel paused; circuit open; provider asked to wait (Retry-After).';
COMMENT ON COLUMN outboxd.stuck.stuck_for IS 'For how long.';
COMMENT ON COLUMN outboxd.stuck.since IS 'Since when.';
COMMENT ON COLUMN outboxd.stuck.channel IS 'The channel it waits for, by the routes of the running instances.';
COMMENT ON COLUMN outboxd.stuck.attempts IS 'Calls to providers so far, all channels.';
COMMENT ON COLUMN outboxd.stuck.worker IS 'The instance that has, or had, it in hand (see outboxd.workers).';
COMMENT ON COLUMN outboxd.stuck.ordering_key IS 'The key it waits behind, if that is the reason: SELECT * FROM outboxd.notifications WHERE ordering_key = …';
