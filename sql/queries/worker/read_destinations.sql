-- What the URL of each message may be made of, for channels whose URL comes from the row. A hint for the limits:
-- nothing is locked, and what is called is what the claim returns. A payload is read only if the URL needs it, and a
-- large one with few others.
-- $1 ids · $2 bytes of a payload at most; 0: no payloads
-- Locks: none. Index: notification_log_pkey.
SELECT l.id, l.topic, l.recipient, CASE WHEN octet_length(l.payload) <= $2::int THEN l.payload END AS payload,
       l.headers::text AS headers, l.created_at
  FROM (SELECT w.id, w.topic, w.recipient, CASE WHEN $2::int > 0 THEN w.payload::text END AS payload, w.headers, w.created_at
          FROM outboxd.notification_log w WHERE w.id = ANY ($1::bigint[]) OFFSET 0) l
