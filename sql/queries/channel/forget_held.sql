-- Circuits of origins that nobody needs to know of any more: the provider's time is over; nobody has called it for an hour
-- after the circuit's; an operator ended it, and all instances know. And of each channel those that were written longest
-- ago, if it has too many. What holds for a channel as a whole is kept.
-- Interleavings: a circuit that opens again, or is probed, in between has its row locked or changed and is passed over,
-- or is written anew. An instance that still holds it finds it gone and lets calls go.
-- $1 origins of a channel at most
-- Locks: the rows, none that is locked. Index: channel_state_pkey; read as a whole, there is a row only for what is or
-- was held.
WITH over AS MATERIALIZED (
    SELECT s.channel, s.origin, s.changed_at FROM (
           SELECT h.channel, h.origin, h.reason, h.held_until, h.probe_until, h.changed_at,
                  row_number() OVER (PARTITION BY h.channel ORDER BY h.changed_at DESC) > $1::int AS is_too_many
             FROM outboxd.channel_state h WHERE h.origin <> '') s
     WHERE coalesce(s.probe_until <= clock_timestamp(), true)
       AND (s.is_too_many OR s.held_until <= clock_timestamp() - CASE s.reason WHEN 'retry_after' THEN interval '0' ELSE interval '1 h' END
            OR s.reason IS NULL AND s.changed_at <= clock_timestamp() - interval '5 min')
), locked AS MATERIALIZED (
    SELECT h.channel, h.origin FROM over o
      JOIN outboxd.channel_state h ON h.channel = o.channel AND h.origin = o.origin AND h.changed_at = o.changed_at
       FOR UPDATE OF h SKIP LOCKED
)
DELETE FROM outboxd.channel_state h USING locked l WHERE h.channel = l.channel AND h.origin = l.origin
