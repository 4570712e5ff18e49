-- What the URL of each message may be made of, for channels whose URL comes from the row. A hint for the limits:
-- nothing is locked, and what is called is what the claim returns. Of a payload only the fields are printed that the URL
-- names: all of 256 KiB takes milliseconds. One that is no object has no fields and comes whole.
-- $1 ids · $2 bytes of a payload at most · $3 its fields; NULL: all of it; none: no payload
-- Locks: none. Index: notification_log_pkey.
SELECT l.id, l.topic, l.recipient, CASE WHEN octet_length(l.payload) <= $2::int THEN l.payload END AS payload,
       l.headers::text AS headers, l.created_at
  FROM (SELECT w.id, w.topic, w.recipient, CASE WHEN $3::text[] = '{}' THEN 'null'
               WHEN $3::text[] IS NULL OR jsonb_typeof(w.payload) <> 'object' THEN w.payload::text
               ELSE (SELECT coalesce(jsonb_object_agg(f.name, w.payload -> f.name), '{}')::text
                       FROM unnest($3::text[]) f(name) WHERE w.payload ? f.name) END AS payload, w.headers, w.created_at
          FROM outboxd.notification_log w WHERE w.id = ANY ($1::bigint[]) OFFSET 0) l
