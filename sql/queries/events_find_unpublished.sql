-- Events still to be appended, in the order they were recorded. Only the owner of the duty appends, so that the order per
-- key is kept.
-- $1 rows at most
-- Locks: none. Index: event_outbox_pkey, event_pkey.
SELECT o.seq, e.id, e.topic, e.key, e.payload::text AS payload, e.headers::text AS headers,
       to_char(e.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS created_at
  FROM (SELECT w.seq, w.event_id FROM outboxd.event_outbox w ORDER BY w.seq LIMIT $1::int) o
  LEFT JOIN outboxd.event e ON e.id = o.event_id
 ORDER BY o.seq
