-- An audience, read by a session that does nothing else: see src/store/audience.rs. This line is how end_reading knows such
-- a session in pg_stat_activity; nothing that runs in it can change what stands there.
-- What is too long comes cut off, so that a row has its bounds before it is sent; payload_bytes tells the payload's.
-- The names were resolved before the audience's code ran, and nothing is resolved after it.
-- $1 audience · $2 slot · $3 rows at most (one more shows that there are too many)
-- Locks: none of ours; whatever the audience reads. Index: whatever the audience has.
SELECT left(a.recipient, 2049) AS recipient, CASE WHEN octet_length(a.payload) <= 262144 THEN a.payload END AS payload,
       octet_length(a.payload) AS payload_bytes
  FROM (SELECT r.recipient, r.payload::text AS payload
          FROM outboxd._read_audience($1::text, $2::timestamptz, $3::bigint + 1) r OFFSET 0) a
