-- Which channels and origins are held now, as every instance sees it, and which an operator freed lately; spans by the
-- database's clock. And the topics that an operator paused, each in a row of its own.
-- $1 instance: its own probes are not elsewhere
-- Locks: none. Index: none, both tables have rows only for what is or was held.
SELECT NULL::text AS topic, h.channel, h.origin, h.paused_at IS NOT NULL AS paused, h.reason, h.openings,
       greatest(extract(epoch FROM clock_timestamp() - h.changed_at) * 1000, 0)::bigint AS changed_ms_ago,
       greatest(extract(epoch FROM h.held_until - clock_timestamp()) * 1000, 0)::bigint AS left_ms,
       CASE WHEN h.probe_by <> $1::int
            THEN greatest(extract(epoch FROM h.probe_until - clock_timestamp()) * 1000, 0)::bigint END AS probe_left_ms
  FROM outboxd.channel_state h
 WHERE h.paused_at IS NOT NULL OR h.reason IS NOT NULL OR h.changed_at > clock_timestamp() - interval '1 min'
UNION ALL
SELECT t.name, '', '', false, NULL, 0, 0, NULL, NULL FROM outboxd.topic t WHERE t.paused_at IS NOT NULL
