-- How each channel, and each origin of it where the URL comes from data, fares: the statistics of the last 5 minutes,
-- and why it is held now, the worst first. Channels of the routes in use are listed even when idle. What waits is
-- counted as in `waiting`.
-- Locks: none. Index: none beyond those of what it reads; there is a row of channel_state only for what is or was held.
CREATE OR REPLACE VIEW outboxd.channel_health AS
WITH called AS (
    SELECT r.channel, r.origin, sum(r.sent) FILTER (WHERE r.minute > now() - interval '5 min') AS sent,
           sum(r.sent + r.failed + r.unknown) FILTER (WHERE r.minute > now() - interval '5 min') AS calls,
           max(r.last_error_at) AS last_error_at,
           (array_agg(r.last_error ORDER BY r.last_error_at DESC NULLS LAST))[1] AS last_error
      FROM outboxd.statistics_channel r WHERE r.minute > now() - interval '1 hour' GROUP BY 1, 2
), known AS (
    SELECT c.channel, c.origin FROM called c
    UNION SELECT h.channel, h.origin FROM outboxd.channel_state h
    UNION SELECT r.channel, '' FROM outboxd.route r
), waiting AS MATERIALIZED (
    SELECT w.held, sum(w.count) AS waiting FROM outboxd._waits w
     WHERE w.held IS NOT NULL AND EXISTS (SELECT FROM outboxd.channel_state h WHERE h.reason IS NOT NULL OR h.paused_at IS NOT NULL)
     GROUP BY 1
)
SELECT k.channel, CASE WHEN outboxd._sees_all() THEN nullif(k.origin, '') ELSE outboxd._masked_origin(nullif(k.origin, '')) END AS origin,
       CASE WHEN h.reason IS NULL OR h.reason = 'retry_after' THEN 'closed'
            WHEN h.held_until > now() THEN 'open' ELSE 'half-open' END AS circuit,
       h.paused_at IS NOT NULL AS paused,
       CASE WHEN h.held_until > now() THEN h.held_until END AS held_until,
       CASE h.reason WHEN 'retry_after' THEN CASE WHEN h.held_until > now() THEN 'the provider asked to wait' END
                     WHEN 'failures' THEN 'calls fail: too many failures in a row'
                                          || CASE WHEN h.is_asked AND h.held_until > now() THEN '; the provider asked to wait' ELSE '' END
                     WHEN 'unauthorized' THEN 'the provider refuses the credentials: too many 401 or 403 in a row'
                     ELSE h.reason END AS held_because,
       CASE WHEN h.reason <> 'retry_after' OR h.held_until > now() THEN h.since END AS held_since,
       CASE WHEN h.reason <> 'retry_after' THEN h.held_until END AS next_probe_at,
       CASE WHEN h.reason <> 'retry_after' OR h.held_until > now() OR h.paused_at IS NOT NULL THEN coalesce(w.waiting, 0) END::bigint AS waiting,
       coalesce(c.calls, 0)::bigint AS calls, round(100.0 * c.sent / nullif(c.calls, 0), 1) AS success_percent,
       s.p95_ms, CASE WHEN outboxd._sees_all() THEN c.last_error ELSE outboxd._cause(c.last_error) END AS last_error, c.last_error_at
  FROM known k
  LEFT JOIN called c ON c.channel = k.channel AND c.origin = k.origin
  LEFT JOIN outboxd.channel_state h ON h.channel = k.channel AND h.origin = k.origin
  LEFT JOIN outboxd._spans s ON s.measure = 'call' AND s.subject = k.channel AND s.origin = k.origin
  LEFT JOIN waiting w ON w.held = h.ctid
 WHERE outboxd._planned_for(outboxd._sees_all())
 ORDER BY CASE WHEN h.reason IS NULL THEN 3 WHEN h.reason = 'retry_after' THEN 2 WHEN k.origin <> '' THEN 1 ELSE 0 END, coalesce(w.waiting, 0) DESC, h.held_until,
          k.channel COLLATE "C", k.origin COLLATE "C";

COMMENT ON VIEW outboxd.channel_health IS 'How each channel fares: calls of the last 5 minutes, and why it is held now.';
COMMENT ON COLUMN outboxd.channel_health.channel IS 'As named in the configuration.';
COMMENT ON COLUMN outboxd.channel_health.origin IS
    'scheme://host:port, where the URL comes from data; NULL: the whole channel; (other): origins beyond the first '
    '10,000 that one instance called within two seconds. For readers with the ends of the host.';
COMMENT ON COLUMN outboxd.channel_health.circuit IS
    'closed: calls go out; open: held; half-open: the next call is a probe.';
COMMENT ON COLUMN outboxd.channel_health.paused IS
    'Whether an operator paused it; outboxd.resume_channel(name) ends that.';
COMMENT ON COLUMN outboxd.channel_health.held_until IS
    'Until when calls are held: by the circuit, or because the provider asked for it; NULL: they are not, or only by a pause.';
COMMENT ON COLUMN outboxd.channel_health.held_because IS 'Why.';
COMMENT ON COLUMN outboxd.channel_health.held_since IS
    'Since when, probes that failed meanwhile included.';
COMMENT ON COLUMN outboxd.channel_health.next_probe_at IS
    'When a single call may show whether the provider is back; in the past: the next notification is that call.';
COMMENT ON COLUMN outboxd.channel_health.waiting IS
    'Notifications that wait for it; with more than 3,000 rows or 500 topics as an instance counted a few seconds ago. NULL: it is not held.';
COMMENT ON COLUMN outboxd.channel_health.calls IS 'Calls in the last 5 minutes.';
COMMENT ON COLUMN outboxd.channel_health.success_percent IS
    'How many of 100 calls in the last 5 minutes succeeded; NULL: there were none.';
COMMENT ON COLUMN outboxd.channel_health.p95_ms IS
    '95 of 100 calls in the last 5 minutes took at most this many milliseconds, to within 9 %.';
COMMENT ON COLUMN outboxd.channel_health.last_error IS 'The last error in the last hour; for readers without what may quote a provider.';
COMMENT ON COLUMN outboxd.channel_health.last_error_at IS 'When that was.';
