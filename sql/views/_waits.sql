-- What waits, by reason, topic, channel and what holds it there. Counted on the spot, or with a large backlog as of the
-- last snapshot: like queue_state. `ends_at`: of what waits at a limit, when the last of its line will have started, at
-- the rate that the instances report. A line is that of a channel, whatever the topics in it, or of a topic that has its
-- share of the calls. NULL: nobody knows, or not within 30 days.
-- Locks: none. Index: those of _count_waiting().
CREATE OR REPLACE VIEW outboxd._waits AS
WITH snapshot AS MATERIALIZED (
    SELECT c.taken_at, c.is_large AND c.taken_at > now() - interval '1 min' AND (SELECT l.any FROM outboxd._alive l) AS serves FROM outboxd.snapshot c
), counted AS (
    SELECT n.*, now() AS counted_at FROM outboxd._count_waiting() n
     WHERE NOT (SELECT c.serves FROM snapshot c)
    UNION ALL
    SELECT n.reason, n.topic, n.channel,
           (SELECT h.ctid FROM outboxd.channel_state h WHERE h.channel = n.channel AND h.origin = n.origin), n.limited_by, n.per_second, n.is_lag, n.count, n.waits_since, n.ready_since,
           (SELECT c.taken_at FROM snapshot c)
      FROM outboxd.snapshot_waiting n
     WHERE (SELECT c.serves FROM snapshot c)
)
SELECT c.*, CASE WHEN c.reason = 'at its limit' AND sum(c.count) OVER line < max(c.per_second) OVER line * 2592000
                 THEN c.counted_at + sum(c.count) OVER line / max(c.per_second) OVER line * interval '1 s' END AS ends_at
  FROM counted c
WINDOW line AS (PARTITION BY c.reason, CASE c.limited_by WHEN 'share of topic' THEN c.topic END,
                             CASE WHEN c.limited_by IS DISTINCT FROM 'share of topic' THEN c.channel END);
